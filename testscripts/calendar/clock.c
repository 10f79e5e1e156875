// A clock that is ahead, for programs that preload this: what they read is the time of
// the kernel plus OFFSET seconds, and the times that they wait for and give to files are
// moved back. Durations and the monotonic clocks stay as they are.
//
// libfaketime does this too, but keeps its state in shared memory by process id, which
// fails where a process executes a program as another user, as those of Slurm's do.
//
//	cc -shared -fPIC -O2 -DOFFSET=3456000 -o clock.so clock.c -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <utime.h>

// next returns the function that this library stands before. Of two versions the newer
// one is meant, which programs of today use.
static void *next(const char *name) {
	void *f = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
	if (!f) f = dlsym(RTLD_NEXT, name);
	if (!f) abort();
	return f;
}
#define NEXT(type, name, ...) \
	static type (*real)(__VA_ARGS__); \
	if (!real) real = next(#name)

// A time of the calendar, not one since the boot.
static int dated(const struct timespec *t) { return t && t->tv_sec > 1000000000; }
static const struct timespec *back(const struct timespec *t, struct timespec *to) {
	if (!dated(t)) return t;
	to->tv_sec = t->tv_sec - OFFSET, to->tv_nsec = t->tv_nsec;
	return to;
}

//--- reading -------------------------------------------------------------------

int clock_gettime(clockid_t id, struct timespec *t) {
	NEXT(int, clock_gettime, clockid_t, struct timespec *);
	int r = real(id, t);
	if (!r && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE || id == CLOCK_TAI)) t->tv_sec += OFFSET;
	return r;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	NEXT(int, gettimeofday, struct timeval *, void *);
	int r = real(t, zone);
	if (!r) t->tv_sec += OFFSET;
	return r;
}

time_t time(time_t *t) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (t) *t = now.tv_sec;
	return now.tv_sec;
}

int timespec_get(struct timespec *t, int base) { return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, t) ? base : 0; }

//--- waiting -------------------------------------------------------------------

#define WAIT(name, type) \
	int name(type x, const struct timespec *t) { \
		NEXT(int, name, type, const struct timespec *); \
		struct timespec to; \
		return real(x, back(t, &to)); \
	}
WAIT(sem_timedwait, sem_t *restrict)
WAIT(pthread_mutex_timedlock, pthread_mutex_t *restrict)
WAIT(pthread_rwlock_timedrdlock, pthread_rwlock_t *restrict)
WAIT(pthread_rwlock_timedwrlock, pthread_rwlock_t *restrict)

int pthread_cond_timedwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m, const struct timespec *restrict t) {
	NEXT(int, pthread_cond_timedwait, pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
	struct timespec to;
	return real(c, m, back(t, &to));
}

int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t id, const struct timespec *t) {
	NEXT(int, pthread_cond_clockwait, pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
	struct timespec to;
	return real(c, m, id, back(t, &to));
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *left) {
	NEXT(int, clock_nanosleep, clockid_t, int, const struct timespec *, struct timespec *);
	struct timespec to;
	return real(id, flags, flags & TIMER_ABSTIME ? back(t, &to) : t, left);
}

int timerfd_settime(int fd, int flags, const struct itimerspec *t, struct itimerspec *old) {
	NEXT(int, timerfd_settime, int, int, const struct itimerspec *, struct itimerspec *);
	struct itimerspec to = *t;
	if (flags & TFD_TIMER_ABSTIME) back(&t->it_value, &to.it_value);
	return real(fd, flags, &to, old);
}

//--- times of files ------------------------------------------------------------

// Each twice: programs that are built with large file support call the second.
#define STAT(name, type) \
	static int ahead_##type(int r, struct type *s) { \
		if (!r) s->st_atim.tv_sec += OFFSET, s->st_mtim.tv_sec += OFFSET, s->st_ctim.tv_sec += OFFSET; \
		return r; \
	} \
	int name(const char *restrict path, struct type *restrict s) { \
		NEXT(int, name, const char *, struct type *); \
		return ahead_##type(real(path, s), s); \
	} \
	int l##name(const char *restrict path, struct type *restrict s) { \
		NEXT(int, l##name, const char *, struct type *); \
		return ahead_##type(real(path, s), s); \
	} \
	int f##name(int fd, struct type *s) { \
		NEXT(int, f##name, int, struct type *); \
		return ahead_##type(real(fd, s), s); \
	}
STAT(stat, stat)
STAT(stat64, stat64)

int fstatat(int fd, const char *restrict path, struct stat *restrict s, int flags) {
	NEXT(int, fstatat, int, const char *, struct stat *, int);
	return ahead_stat(real(fd, path, s, flags), s);
}
int fstatat64(int fd, const char *restrict path, struct stat64 *restrict s, int flags) {
	NEXT(int, fstatat64, int, const char *, struct stat64 *, int);
	return ahead_stat64(real(fd, path, s, flags), s);
}
int statx(int fd, const char *restrict path, int flags, unsigned mask, struct statx *restrict s) {
	NEXT(int, statx, int, const char *, int, unsigned, struct statx *);
	int r = real(fd, path, flags, mask, s);
	if (!r) s->stx_atime.tv_sec += OFFSET, s->stx_btime.tv_sec += OFFSET, s->stx_ctime.tv_sec += OFFSET, s->stx_mtime.tv_sec += OFFSET;
	return r;
}

int utimensat(int fd, const char *path, const struct timespec t[2], int flags) {
	NEXT(int, utimensat, int, const char *, const struct timespec *, int);
	if (!t) return real(fd, path, t, flags);
	struct timespec to[2] = {t[0], t[1]};
	for (int i = 0; i < 2; i++) if (t[i].tv_nsec != UTIME_NOW && t[i].tv_nsec != UTIME_OMIT) to[i].tv_sec -= OFFSET;
	return real(fd, path, to, flags);
}
int futimens(int fd, const struct timespec t[2]) {
	NEXT(int, futimens, int, const struct timespec *);
	if (!t) return real(fd, t);
	struct timespec to[2] = {t[0], t[1]};
	for (int i = 0; i < 2; i++) if (t[i].tv_nsec != UTIME_NOW && t[i].tv_nsec != UTIME_OMIT) to[i].tv_sec -= OFFSET;
	return real(fd, to);
}
int utimes(const char *path, const struct timeval t[2]) {
	NEXT(int, utimes, const char *, const struct timeval *);
	if (!t) return real(path, t);
	struct timeval to[2] = {{t[0].tv_sec - OFFSET, t[0].tv_usec}, {t[1].tv_sec - OFFSET, t[1].tv_usec}};
	return real(path, to);
}
int utime(const char *path, const struct utimbuf *t) {
	NEXT(int, utime, const char *, const struct utimbuf *);
	if (!t) return real(path, t);
	struct utimbuf to = {t->actime - OFFSET, t->modtime - OFFSET};
	return real(path, &to);
}
