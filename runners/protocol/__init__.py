"""What happens in the processes of one trial: prepare, build, verify, warm up, time, verify again."""
