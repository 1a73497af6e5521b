/* Many processes and threads that do nothing of Osmos's: load that no daemon manages.
 *
 *   crowd computing THREADS     the first thread sleeps, so many others compute
 *   crowd asleep COUNT THREADS  so many processes of so many threads each, all asleep
 *   crowd brief COUNT           so many children at any time, each computing for 20 ms
 *
 * Says "ready" when all are there, and goes on until it is killed; children end with it. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *compute(void *unused)
{
	(void)unused;
	for (volatile unsigned long n = 0;; n++)
		;
	return NULL;
}

static void *sleep_on(void *unused)
{
	(void)unused;
	for (;;)
		pause();
	return NULL;
}

static void start(int threads, void *(*what)(void *))
{
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	for (int n = 0; n < threads; n++) {
		pthread_t thread;
		if (pthread_create(&thread, &small, what, NULL) != 0) {
			perror("pthread_create");
			exit(1);
		}
	}
}

static void say_ready(void)
{
	puts("ready");
	fflush(stdout);
}

static void end_with_parent(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
}

static void asleep(int count, int threads)
{
	pid_t me = getpid();
	int told[2];
	char byte = 0;
	if (pipe(told) != 0)
		exit(1);
	for (int n = 0; n < count; n++) {
		pid_t child = fork();
		if (child < 0) {
			perror("fork");
			exit(1);
		}
		if (child == 0) {
			end_with_parent(me);
			start(threads - 1, sleep_on);
			if (write(told[1], &byte, 1) != 1)
				_exit(1);
			sleep_on(NULL);
		}
	}
	for (int n = 0; n < count; n++)
		if (read(told[0], &byte, 1) != 1)
			exit(1);
	say_ready();
	sleep_on(NULL);
}

static void brief(int count)
{
	pid_t me = getpid();
	say_ready();
	for (int running = 0;; running++) {
		if (running >= count && wait(NULL) > 0)
			running--;
		if (fork() != 0)
			continue;
		end_with_parent(me);
		struct timespec used;
		do
			clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
		while (used.tv_nsec < 20 * 1000 * 1000);
		_exit(0);
	}
}

int main(int count, char **words)
{
	if (count == 3 && strcmp(words[1], "computing") == 0) {
		start(atoi(words[2]), compute);
		say_ready();
		sleep_on(NULL);
	} else if (count == 4 && strcmp(words[1], "asleep") == 0) {
		asleep(atoi(words[2]), atoi(words[3]));
	} else if (count == 3 && strcmp(words[1], "brief") == 0) {
		brief(atoi(words[2]));
	}
	fprintf(stderr, "usage: crowd computing THREADS | asleep COUNT THREADS | brief COUNT\n");
	return 2;
}
