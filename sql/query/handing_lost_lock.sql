select from postdate.gate where name = 'hand-over' for update
