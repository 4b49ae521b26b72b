-- One gateway at a time moves the bindings of the exit queues, once.
select count(*)
  from (select from postdate.gate where name = 'exit queues' and (select exit_bound from postdate.meta) = 0 for update skip locked) g
