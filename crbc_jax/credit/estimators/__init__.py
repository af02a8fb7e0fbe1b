"""Step-credit estimators: one pure function per module, one signature."""
