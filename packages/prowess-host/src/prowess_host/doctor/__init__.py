"""What is wrong with a project and its connections, from the interpreter to each client, and what to do about it."""
