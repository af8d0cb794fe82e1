"""Plans for other trainers: their arguments and files, written from a job and read as one."""
