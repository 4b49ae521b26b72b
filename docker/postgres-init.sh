#!/bin/sh
# Run once by the official image, as the superuser, when the data folder is new: a role that owns its database and
# nothing else. The password goes from its file into psql; it is in no argument list and no environment.
set -eu
psql -v ON_ERROR_STOP=1 --no-password --username "${POSTGRES_USER:-postgres}" --dbname postgres <<'SQL'
\set password `cat /run/postdate/postdate`
-- Statements are not logged here, so that the password is in no log either.
set log_statement = 'none';
set log_min_error_statement = 'panic';
create role postdate login password :'password';
create database postdate owner postdate encoding 'UTF8' template template0;
revoke all on database postdate from public;
SQL
