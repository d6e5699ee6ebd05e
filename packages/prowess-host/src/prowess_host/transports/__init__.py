"""How bytes reach a client and come from one."""
