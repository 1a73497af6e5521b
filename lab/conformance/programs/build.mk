# Builds, and builds again what depends on a file that has become newer: by the clock of the file
# system, and by that of a process.
again = @$(MAKE) --no-print-directory -f build.mk both

all:
	@printf 'one two\n' > a.in
	@printf 'three four\n' > b.in
	@echo everything
	$(again)
	@echo nothing
	$(again)
	@echo what depends on a.in
	@touch a.in
	$(again)
	@echo what depends on b.in
	@touch -d "@$$(date +%s.%N)" b.in
	$(again)
	@echo nothing
	$(again)
	@cat both

both: a.out b.out
	cat a.out b.out > both

%.out: %.in
	i=0; while [ $$i -lt 40000 ]; do i=$$((i + 1)); done; tr a-z A-Z < $< > $@
