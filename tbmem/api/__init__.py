"""What `import tbmem` offers beside the callback: functions whose results the command line prints."""
