"""The little of libpq that the workload needs, by ctypes: what was committed must be known exactly, and every wait has an
end. One thread at a time per connection."""
import ctypes
import ctypes.util
import re
import select
import time

_lib = ctypes.CDLL(ctypes.util.find_library('pq') or 'libpq.so.5')
_NOTICE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
for _name, _result, _arguments in (
        ('PQconnectdb', ctypes.c_void_p, [ctypes.c_char_p]), ('PQfinish', None, [ctypes.c_void_p]),
        ('PQstatus', ctypes.c_int, [ctypes.c_void_p]), ('PQsocket', ctypes.c_int, [ctypes.c_void_p]),
        ('PQerrorMessage', ctypes.c_char_p, [ctypes.c_void_p]), ('PQconsumeInput', ctypes.c_int, [ctypes.c_void_p]),
        ('PQisBusy', ctypes.c_int, [ctypes.c_void_p]), ('PQgetResult', ctypes.c_void_p, [ctypes.c_void_p]),
        ('PQsendQueryParams', ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p,
                                             ctypes.POINTER(ctypes.c_char_p), ctypes.c_void_p, ctypes.c_void_p,
                                             ctypes.c_int]),
        ('PQsetNoticeProcessor', ctypes.c_void_p, [ctypes.c_void_p, _NOTICE, ctypes.c_void_p]),
        ('PQresultStatus', ctypes.c_int, [ctypes.c_void_p]), ('PQclear', None, [ctypes.c_void_p]),
        ('PQresultErrorField', ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_int]),
        ('PQcmdStatus', ctypes.c_char_p, [ctypes.c_void_p]), ('PQntuples', ctypes.c_int, [ctypes.c_void_p]),
        ('PQnfields', ctypes.c_int, [ctypes.c_void_p]),
        ('PQgetvalue', ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_int, ctypes.c_int])):
    getattr(_lib, _name).restype, getattr(_lib, _name).argtypes = _result, _arguments

COMMAND_OK, TUPLES_OK = 1, 2
SQLSTATE, PRIMARY = ord('C'), ord('M')


class Lost(Exception):
    """The connection is gone, or was given up; nobody knows what became of the statement."""


class Refused(Exception):
    """The server refused a statement, and the connection lives. sqlstate says why."""

    def __init__(self, sqlstate, text):
        super().__init__(f'{sqlstate} {text}')
        self.sqlstate = sqlstate


class Connection:
    def __init__(self, url, limit_s=15.0):
        """limit_s: how long an answer is waited for."""
        separator = '&' if '?' in url else '?'
        self.limit_s = limit_s
        self.notices = []
        self.pg = _lib.PQconnectdb(f'{url}{separator}connect_timeout=3&application_name=workload'.encode())
        if _lib.PQstatus(self.pg) != 0:
            text = _lib.PQerrorMessage(self.pg).decode(errors='replace')
            self.close()
            raise Lost(text)
        self.on_notice = _NOTICE(lambda _, text: self.notices.append(text.decode(errors='replace')))
        _lib.PQsetNoticeProcessor(self.pg, self.on_notice, None)

    def ask(self, statement, *parameters):
        """(the command's tag, rows of texts). The answer is complete only when the server is ready for the next statement:
        a row comes before the commit of the statement that made it."""
        self.notices.clear()
        values = (ctypes.c_char_p * max(1, len(parameters)))(*[None if p is None else str(p).encode() for p in parameters])
        if not _lib.PQsendQueryParams(self.pg, statement.encode(), len(parameters), None, values, None, None, 0):
            raise self.lost()
        tag, rows, error, until = '', [], None, time.monotonic() + self.limit_s
        while result := self.next_result(until):
            try:
                if _lib.PQresultStatus(result) in (COMMAND_OK, TUPLES_OK):
                    tag, rows = _lib.PQcmdStatus(result).decode(), self.rows(result)
                else:
                    fields = [(_lib.PQresultErrorField(result, f) or b'').decode(errors='replace') for f in (SQLSTATE, PRIMARY)]
                    error = error or Refused(*fields)
            finally:
                _lib.PQclear(result)
        if _lib.PQstatus(self.pg) != 0:
            raise self.lost()
        if error:
            raise error
        return tag, rows

    def next_result(self, until):
        while _lib.PQisBusy(self.pg):
            left = until - time.monotonic()
            if left <= 0 or _lib.PQsocket(self.pg) < 0:
                raise Lost(f'no answer within {self.limit_s:.0f} s')
            if select.select([_lib.PQsocket(self.pg)], [], [], left)[0] and not _lib.PQconsumeInput(self.pg):
                raise self.lost()
        return _lib.PQgetResult(self.pg)

    @staticmethod
    def rows(result):
        return [[_lib.PQgetvalue(result, r, c).decode() for c in range(_lib.PQnfields(result))]
                for r in range(_lib.PQntuples(result))]

    def lost(self):
        return Lost(re.sub(r'\s+', ' ', (_lib.PQerrorMessage(self.pg) or b'').decode(errors='replace')))

    def close(self):
        if self.pg:
            _lib.PQfinish(self.pg)
            self.pg = None
