/*
 * SPANK plugin that adds resource requests (--find) to sbatch, salloc and srun.
 *
 *   --find=REQUEST    the options that "lfind REQUEST" finds are the job's,
 *                     where the command line does not say otherwise
 *   --ponos-task=ID   the job works on that task: its comment, PONOS_TASK
 *
 * A plugin cannot set most options of a job, and not every option has an
 * environment variable. So the client is executed once more, with the options
 * behind argv[0]: there they come before what the user gave, who wins, and count
 * more than SBATCH_* variables and lines of the script. A heterogeneous job has
 * several components, "OPTIONS : OPTIONS"; there each gets what its own --find
 * finds, behind its ':'.
 *
 * A client that uses neither option only has them registered. The plugin must be
 * built for the version of Slurm that loads it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(ponos, 1)

/* Exit statuses of the ponos tools. */
enum { FAILED = 1, USAGE = 2, UNAVAILABLE = 3 };

enum { FIND, TASK };

#define TASK_VARIABLE "PONOS_TASK"
#define GUARD "PONOS_SPANK_PID"
/* Under these names a client would find the options of the job it runs in. */
static const char *const inherited[] = {
	"_SLURM_SPANK_OPTION_ponos_find", "SLURM_SPANK__SLURM_SPANK_OPTION_ponos_find",
	"_SLURM_SPANK_OPTION_ponos_ponos_task", "SLURM_SPANK__SLURM_SPANK_OPTION_ponos_ponos_task",
};

#define MAX_TASK 64               /* bytes of a task id, as in lib/task */
#define MAX_ANSWER (256 * 1024)   /* bytes that lfind may print */
#define MAX_PROC (8 * 1024 * 1024) /* bytes of a command line or an environment */
#define MAX_COMPONENTS 128        /* of a heterogeneous job; sbatch takes more of them */

static struct {
	const char *lfind;
	const char *config; /* launchers.yaml for lfind, or NULL */
	int timeout;        /* of lfind, in seconds */
} settings = { "/usr/bin/lfind", NULL, 10 };

static char *request;            /* value of --find, of the component that is read */
static char task[MAX_TASK + 1];  /* value of --ponos-task */
static int again;                /* this is the client's second run */
static off_t script_at = -1;     /* where standard input stood, if it can be rewound */
static sigset_t mask;            /* of the client at its start */

/* The components of the job that the client has read, of which there is one unless
 * the job is heterogeneous. */
static struct component {
	char *request; /* value of --find, or NULL */
	char *repeated; /* the same, or that of the component before */
	int words;     /* of the command line, up to the first that does not belong to an option */
	size_t start;  /* word that its options are behind: the program's name, or ':' */
} components[MAX_COMPONENTS];
static size_t component_count;

static int option(int val, const char *value, int remote);

static struct spank_option options[] = {
	{ "find", "REQUEST", "take the options that \"lfind REQUEST\" finds", 1, FIND, option },
	{ "ponos-task", "ID", "mark the job as working on a task of Ponos", 1, TASK, option },
};

/* fail ends the client: a job without the requested launcher must not be submitted. */
static void fail(int status) __attribute__((noreturn));
static void fail(int status)
{
	fflush(NULL);
	_exit(status);
}

static void *allocate(size_t size)
{
	void *p = calloc(1, size);
	if (!p) {
		slurm_error("ponos: out of memory");
		fail(FAILED);
	}
	return p;
}

/* A list of words that ends with NULL, over one piece of memory. */
struct words {
	char *memory;
	char **word;
	size_t count;
};

static void release(struct words *w)
{
	free(w->word);
	free(w->memory);
	memset(w, 0, sizeof *w);
}

/* split makes words of memory in which each word ends with a zero byte. */
static struct words split(char *memory, size_t size)
{
	struct words w = { memory, NULL, 0 };
	for (size_t i = 0; i < size; i++)
		w.count += memory[i] == '\0';
	w.word = allocate((w.count + 1) * sizeof *w.word);
	size_t n = 0;
	for (char *p = memory; n < w.count; p += strlen(p) + 1)
		w.word[n++] = p;
	return w;
}

/* read_words reads words from a file in /proc. */
static int read_words(const char *path, struct words *w)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	size_t size = 0, room = 16 * 1024;
	char *memory = allocate(room);
	for (;;) {
		ssize_t n = read(fd, memory + size, room - size - 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 || room > MAX_PROC) {
			free(memory);
			close(fd);
			return -1;
		}
		if (n == 0)
			break;
		size += (size_t)n;
		if (size + 1 >= room) {
			char *more = allocate(room * 2);
			memcpy(more, memory, size);
			free(memory);
			memory = more;
			room *= 2;
		}
	}
	close(fd);
	if (size > 0 && memory[size - 1] != '\0')
		size++; /* the byte is there, and zero */
	*w = split(memory, size);
	return 0;
}

static int good_task(const char *id)
{
	size_t n = strlen(id);
	if (n == 0 || n > MAX_TASK || *id == '-' || *id == '_')
		return 0;
	return strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == n;
}

/* number reads a positive decimal number up to max, or returns 0. */
static int number(const char *text, int max)
{
	char *end;
	errno = 0;
	long n = strtol(text, &end, 10);
	return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && n <= max ? (int)n : 0;
}

/* take keeps the value of an option. */
static int take(int which, const char *value)
{
	if (which == FIND) {
		free(request);
		request = strdup(value);
		return request ? 0 : -1;
	}
	if (!good_task(value)) {
		slurm_error("ponos: --ponos-task: invalid task id \"%.80s\": expected up to %d letters, digits, '-' and '_'", value, MAX_TASK);
		return -1;
	}
	memcpy(task, value, strlen(value) + 1);
	return 0;
}

/* option is called for each of our options that the client reads. */
static int option(int val, const char *value, int remote)
{
	if (remote)
		return 0;
	if (take(val, value ? value : "") != 0)
		fail(USAGE);
	return 0;
}

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/*
 * collect reads what lfind prints until it has closed its output. It returns 0,
 * or what went wrong.
 */
static const char *collect(int fd, char *answer, size_t *size, long long deadline)
{
	for (;;) {
		long long left = deadline - now();
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready < 0)
			return strerror(errno);
		if (ready == 0)
			return "no answer in time";
		ssize_t n = read(fd, answer + *size, MAX_ANSWER - *size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return strerror(errno);
		if (n == 0)
			return NULL;
		*size += (size_t)n;
		if (*size == MAX_ANSWER)
			return "the answer is too long";
	}
}

/* await waits for the end of a process until the deadline, and leaves it a zombie. */
static int await(pid_t pid, long long deadline)
{
	for (;;) {
		siginfo_t info = { .si_pid = 0 };
		if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno != EINTR)
			return -1;
		if (info.si_pid == pid)
			return 0;
		if (now() >= deadline)
			return -1;
		struct timespec moment = { 0, 2000000 };
		nanosleep(&moment, NULL);
	}
}

/* child becomes lfind. Only what is safe after a fork happens here. */
static void child(char *const argv[], char *const environment[], int out, int status, pid_t parent) __attribute__((noreturn));
static void child(char *const argv[], char *const environment[], int out, int status, pid_t parent)
{
	sigset_t none;
	sigemptyset(&none);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int null = open("/dev/null", O_RDONLY);
	/* A client without standard output has the pipe there already. */
	int piped = out == 1 ? fcntl(1, F_SETFD, 0) : dup2(out, 1);
	if (getppid() == parent && null >= 0 && dup2(null, 0) == 0 && piped >= 0) {
		sigprocmask(SIG_SETMASK, &none, NULL);
		execve(argv[0], argv, environment);
	}
	int why = errno;
	ssize_t ignored = write(status, &why, sizeof why);
	(void)ignored;
	_exit(127);
}

/* ask_lfind returns the options that lfind finds; it ends the client if there are none. */
static struct words ask_lfind(char *resources, char *const environment[])
{
	char *argv[10];
	int n = 0;
	argv[n++] = (char *)settings.lfind;
	argv[n++] = "--format=args0";
	argv[n++] = "--kind=slurm";
	if (settings.config) {
		argv[n++] = "--config";
		argv[n++] = (char *)settings.config;
	}
	argv[n++] = "--";
	argv[n++] = resources;
	argv[n] = NULL;

	int out[2], failed[2];
	if (pipe2(out, O_CLOEXEC) != 0 || pipe2(failed, O_CLOEXEC) != 0) {
		slurm_error("ponos: --find: %s", strerror(errno));
		fail(UNAVAILABLE);
	}
	struct sigaction normal, before;
	memset(&normal, 0, sizeof normal);
	normal.sa_handler = SIG_DFL;
	sigaction(SIGCHLD, &normal, &before);
	fflush(NULL);
	pid_t parent = getpid();
	pid_t pid = fork();
	if (pid == 0)
		child(argv, environment, out[1], failed[1], parent);
	close(out[1]);
	close(failed[1]);
	if (pid < 0) {
		slurm_error("ponos: --find: %s", strerror(errno));
		fail(UNAVAILABLE);
	}
	setpgid(pid, pid); /* also done by the child, whichever is first */

	char *answer = allocate(MAX_ANSWER + 1);
	size_t size = 0;
	long long deadline = now() + settings.timeout * 1000LL;
	const char *wrong = collect(out[0], answer, &size, deadline);
	int status = 0;
	if (!wrong && await(pid, deadline) != 0)
		wrong = "it does not end";
	kill(-pid, SIGKILL); /* and whatever it has left behind */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	close(out[0]);
	int why = 0;
	if (read(failed[0], &why, sizeof why) != (ssize_t)sizeof why)
		why = 0;
	close(failed[0]);
	sigaction(SIGCHLD, &before, NULL);

	if (why) {
		slurm_error("ponos: --find: %s: %s", settings.lfind, strerror(why));
		fail(UNAVAILABLE);
	}
	if (wrong) {
		slurm_error("ponos: --find: %s: %s (%d s)", settings.lfind, wrong, settings.timeout);
		fail(UNAVAILABLE);
	}
	if (WIFSIGNALED(status)) {
		slurm_error("ponos: --find: %s: ended by signal %d", settings.lfind, WTERMSIG(status));
		fail(UNAVAILABLE);
	}
	if (WEXITSTATUS(status) != 0)
		fail(WEXITSTATUS(status)); /* it has said why */
	if (size > 0 && answer[size - 1] != '\0')
		size = 0; /* not what was asked for */
	struct words found = split(answer, size);
	for (size_t i = 0; i < found.count; i++)
		if (strncmp(found.word[i], "--", 2) != 0 || found.word[i][2] == '\0')
			found.count = 0;
	if (found.count == 0) {
		slurm_error("ponos: --find: %s: its answer has no options", settings.lfind);
		fail(UNAVAILABLE);
	}
	return found;
}

/* in_job reports whether an srun is to run a step of a job that already exists. */
static int in_job(void)
{
	return spank_context() == S_CTX_LOCAL && (getenv("SLURM_JOB_ID") || getenv("SLURM_JOBID"));
}

/* is_client reports whether a command line is that of a client. */
static int is_client(const struct words *line, const char *name)
{
	const char *slash = strrchr(line->word[0], '/');
	return strcmp(slash ? slash + 1 : line->word[0], name) == 0;
}

/*
 * locate finds where on the command line each component starts. It returns how many
 * there are on it; the last of those may not have been read yet.
 */
static size_t locate(const struct words *line)
{
	size_t at = 0;
	for (size_t i = 0; i < component_count; i++) {
		components[i].start = at;
		at += (size_t)components[i].words;
		/* What srun runs may stand between the options and the ':'. */
		while (spank_context() == S_CTX_LOCAL && at < line->count && strcmp(line->word[at], ":") != 0)
			at++;
		if (at >= line->count || strcmp(line->word[at], ":") != 0)
			return i + 1;
	}
	return component_count + 1;
}

/*
 * given reports whether a component has a --find of its own on the command line.
 * For each component sbatch and salloc also repeat the options of the one before.
 */
static int given(const struct words *line, const struct component *c)
{
	for (size_t i = c->start + 1; i < c->start + (size_t)c->words && i < line->count; i++) {
		size_t n = strcspn(line->word[i], "=");
		if (n > 3 && n <= sizeof "--find" - 1 && strncmp(line->word[i], "--find", n) == 0)
			return 1;
	}
	return 0;
}

/*
 * run_again executes the client anew with the options that our options stand for,
 * in the environment that it was started with: it has changed its own meanwhile.
 */
static void run_again(const struct words *line) __attribute__((noreturn));
static void run_again(const struct words *line)
{
	struct words environment;
	char program[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
	if (n < 0 || read_words("/proc/self/environ", &environment) != 0) {
		slurm_error("ponos: cannot read /proc/self: %s", strerror(errno));
		fail(UNAVAILABLE);
	}
	program[n] = '\0';
	for (size_t i = 1; i < component_count; i++) {
		struct component *c = &components[i];
		if (c->request && components[i - 1].repeated && strcmp(c->request, components[i - 1].repeated) == 0 && !given(line, c))
			c->request = NULL;
	}

	char comment[sizeof "--comment=" TASK_VARIABLE "=" + MAX_TASK];
	snprintf(comment, sizeof comment, "--comment=%s=%s", TASK_VARIABLE, task);

	struct words found[MAX_COMPONENTS];
	size_t more = 0;
	for (size_t i = 0; i < component_count; i++) {
		memset(&found[i], 0, sizeof found[i]);
		if (components[i].request)
			found[i] = ask_lfind(components[i].request, environment.word);
		more += found[i].count;
	}
	char **argv = allocate((line->count + more + 2) * sizeof *argv);
	size_t count = 0, c = 0;
	for (size_t i = 0; i < line->count; i++) {
		argv[count++] = line->word[i];
		if (c >= component_count || i != components[c].start)
			continue;
		for (size_t f = 0; f < found[c].count; f++)
			argv[count++] = found[c].word[f];
		/* One job alone is that of the task. */
		if (*task && c == 0)
			argv[count++] = comment;
		c++;
	}

	char guard[sizeof GUARD + 32];
	snprintf(guard, sizeof guard, GUARD "=%ld", (long)getpid());
	char **variables = allocate((environment.count + 2) * sizeof *variables);
	count = 0;
	for (size_t i = 0; i < environment.count; i++)
		if (strncmp(environment.word[i], GUARD "=", sizeof GUARD) != 0)
			variables[count++] = environment.word[i];
	variables[count++] = guard;

	if (script_at >= 0)
		lseek(0, script_at, SEEK_SET);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	fflush(NULL);
	execve(program, argv, variables);
	slurm_error("ponos: %s: %s", program, strerror(errno));
	fail(UNAVAILABLE);
}

/* in reports whether a word is one of a list that ends with NULL. */
static int in(const char *const list[], const char *word)
{
	for (; *list; list++)
		if (strcmp(*list, word) == 0)
			return 1;
	return 0;
}

/*
 * look_ahead takes our options from a command line of sbatch before sbatch reads
 * it. It stops at the first word of which it is not sure that it is an option or
 * the value of one: what follows may be the script's. It reports whether a script
 * is named or given for sure, and whether there are several components, of which it
 * takes the options of the first.
 */
static int look_ahead(const struct words *line, int *several)
{
	static const char with_value[] = "AabBcCdDeFGiJLMmnNopqStwx";
	static const char *const with_values[] = {
		"account", "acctg-freq", "array", "autocomplete", "batch", "bb", "bbf", "begin", "chdir",
		"cluster", "cluster-constraint", "clusters", "comment", "constraint", "container",
		"container-id", "container-type", "context", "core-spec", "cores-per-socket", "cpu-freq",
		"cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot", "dependency", "distribution",
		"error", "exclude", "export", "export-file", "extra", "extra-node-info", "gid", "gpu-bind",
		"gpu-freq", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres",
		"gres-flags", "hint", "input", "job-name", "kill-on-invalid-dep", "licenses", "mail-type",
		"mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mem-update",
		"mincpus", "network", "nodefile", "nodelist", "nodes", "ntasks", "ntasks-per-core",
		"ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "ntasks-per-tres", "open-mode",
		"output", "partition", "power", "prefer", "priority", "profile", "qos", "reservation",
		"resources", "segment", "signal", "sockets-per-node", "switches", "tasks-per-node",
		"thread-spec", "threads-per-core", "time", "time-min", "tmp", "tres-bind", "tres-per-task",
		"uid", "wait-all-nodes", "wckey", NULL,
	};
	static const char *const without[] = {
		"consolidate-segments", "contiguous", "exclusive", "external", "get-user-env", "help",
		"hold", "ignore-pbs", "nice", "no-kill", "no-requeue", "nvmps", "oom-kill-step",
		"overcommit", "oversubscribe", "parsable", "propagate", "quiet", "reboot", "requeue",
		"resv-ports", "spread-job", "spread-segments", "stepmgr", "test-only", "usage",
		"use-min-nodes", "verbose", "version", "wait", NULL,
	};
	*several = 0;
	for (size_t i = 1; i < line->count; i++) {
		char *word = line->word[i], *next = line->word[i + 1];
		if (strcmp(word, "--") == 0)
			return next != NULL;
		if (strcmp(word, ":") == 0) {
			*several = 1;
			continue;
		}
		if (word[0] != '-' || word[1] == '\0' || strncmp(word, "--wrap", 6) == 0)
			return 1;
		if (word[1] != '-') {
			size_t end = strcspn(word + 1, with_value) + 1;
			i += word[end] != '\0' && word[end + 1] == '\0';
			continue;
		}
		for (int which = FIND; which <= TASK; which++) {
			const char *name = options[which].name;
			size_t n = strlen(name);
			if (strncmp(word + 2, name, n) != 0 || (word[n + 2] != '=' && word[n + 2] != '\0'))
				continue;
			const char *value = word[n + 2] == '=' ? word + n + 3 : next;
			if (value && !*several && take(which, value) != 0)
				fail(USAGE);
			i += word[n + 2] == '\0';
			word = NULL;
			break;
		}
		if (!word || strchr(word, '='))
			continue;
		if (in(with_values, word + 2))
			i++;
		else if (!in(without, word + 2) && next && next[0] != '-')
			return 0;
	}
	return 0;
}

/* client prepares a run of sbatch, salloc or srun. */
static void client(void)
{
	const char *guard = getenv(GUARD);
	again = guard && number(guard, INT_MAX) == (int)getpid();
	unsetenv(GUARD);
	for (size_t i = 0; i < sizeof inherited / sizeof *inherited; i++)
		unsetenv(inherited[i]);
	sigprocmask(SIG_SETMASK, NULL, &mask);
	script_at = lseek(0, 0, SEEK_CUR);
	if (again || script_at >= 0 || isatty(0))
		return;
	/* A script that comes through a pipe can be read only once: our options must
	 * be known before sbatch reads it. */
	struct words line;
	int several;
	if (read_words("/proc/self/cmdline", &line) != 0)
		return;
	if (line.count > 0 && is_client(&line, "sbatch") && !look_ahead(&line, &several) && !several && (request || *task)) {
		components[0].request = request;
		component_count = 1;
		run_again(&line);
	}
	free(request);
	request = NULL;
	*task = '\0';
	release(&line);
}

/* configure reads the words behind the plugin in plugstack.conf. */
static void configure(int argc, char *argv[])
{
	for (int i = 0; i < argc; i++) {
		if (strncmp(argv[i], "lfind=/", 7) == 0)
			settings.lfind = argv[i] + 6;
		else if (strncmp(argv[i], "config=/", 8) == 0)
			settings.config = argv[i] + 7;
		else if (strncmp(argv[i], "timeout=", 8) == 0 && number(argv[i] + 8, 3600) > 0)
			settings.timeout = number(argv[i] + 8, 3600);
		else
			slurm_error("ponos: plugstack.conf: invalid argument \"%.80s\": expected lfind=/PATH, config=/PATH or timeout=SECONDS", argv[i]);
	}
}

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
	spank_context_t context = spank_context();
	if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
		return 0;
	for (size_t i = 0; i < sizeof options / sizeof *options; i++)
		if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS)
			slurm_error("ponos: cannot add --%s", options[i].name);
	if (context == S_CTX_REMOTE)
		return 0;
	configure(argc, argv);
	client();
	return 0;
}

/*
 * in_pipe reports whether a script came through a pipe, which was read to its end.
 */
static int in_pipe(const struct words *line)
{
	struct stat in;
	struct pollfd p = { .fd = 0, .events = POLLIN };
	int several;
	return is_client(line, "sbatch") && script_at < 0 && fstat(0, &in) == 0 && S_ISFIFO(in.st_mode) &&
	       !look_ahead(line, &several) && poll(&p, 1, 0) > 0 && !(p.revents & POLLIN);
}

/*
 * component_read notes the component that the client has just read. It is called
 * for each, in their order, with optind where getopt has stopped in it.
 */
static void component_read(void)
{
	if (component_count == MAX_COMPONENTS) {
		int ours = request || *task;
		for (size_t i = 0; i < component_count; i++)
			ours |= components[i].request != NULL;
		if (!ours)
			return;
		slurm_error("ponos: --find and --ponos-task are for heterogeneous jobs of up to %d components", MAX_COMPONENTS);
		fail(USAGE);
	}
	struct component *c = &components[component_count++];
	c->request = c->repeated = request;
	c->words = optind > 0 ? optind : 1;
	request = NULL;
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
	(void)argc;
	(void)argv;
	static int asked, told;
	spank_context_t context = spank_context();
	if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR)
		return 0;
	asked |= request != NULL;
	if (!asked && !*task) {
		component_read();
		return 0;
	}
	if (in_job()) {
		if (!told++)
			slurm_info("ponos: --find and --ponos-task are for jobs; this is a step of job %s", getenv("SLURM_JOB_ID") ? getenv("SLURM_JOB_ID") : getenv("SLURM_JOBID"));
		return 0;
	}
	struct words line;
	if (read_words("/proc/self/cmdline", &line) != 0 || line.count == 0) {
		slurm_error("ponos: cannot read /proc/self/cmdline");
		fail(UNAVAILABLE);
	}
	component_read();
	size_t there = locate(&line);
	if (component_count > there && components[component_count - 1].request) {
		slurm_error("ponos: --find for the components of a heterogeneous job goes on the command line, not into the script");
		fail(USAGE);
	}
	if (!again && component_count >= there) {
		if (in_pipe(&line)) {
			slurm_error("ponos: a script from a pipe cannot be read twice: give --find and --ponos-task first on the command line");
			fail(USAGE);
		}
		run_again(&line);
	}
	release(&line);
	if (again && *task) {
		/* The first reaches the job with --export=ALL, the second with NONE as
		 * well, and also prolog and epilog. */
		setenv(TASK_VARIABLE, task, 1);
		spank_job_control_setenv(spank, TASK_VARIABLE, task, 1);
	}
	return 0;
}

/* In the job, PONOS_TASK is there whatever --export was. */
int slurm_spank_user_init(spank_t spank, int argc, char *argv[])
{
	(void)argc;
	(void)argv;
	char id[MAX_TASK + 1];
	if (spank_remote(spank) == 1 &&
	    spank_getenv(spank, "SLURM_SPANK_" TASK_VARIABLE, id, sizeof id) == ESPANK_SUCCESS && good_task(id))
		spank_setenv(spank, TASK_VARIABLE, id, 1);
	return 0;
}

int slurm_spank_exit(spank_t spank, int argc, char *argv[])
{
	(void)spank;
	(void)argc;
	(void)argv;
	free(request);
	request = NULL;
	for (size_t i = 0; i < component_count; i++)
		free(components[i].request);
	component_count = 0;
	return 0;
}
