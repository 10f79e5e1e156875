package agent

import "time"

// pause grows with each failed try: 10 s, 20 s, and so on, at most 10 minutes.
func pause(tries int) time.Duration {
	return min(10*time.Second<<min(max(0, tries-1), 10), longestPause)
}

const longestPause = 10 * time.Minute

// pauses reports whether the task is not to be submitted yet. A time that is further away than the
// longest pause is that of a clock that was set back since.
func (r Record) pauses(now time.Time) bool {
	wait := r.Retry.Sub(now)
	if r.Preparing != nil {
		return wait > 0 && wait <= longestPause
	}
	return wait > 0 && wait <= pause(max(r.Tries, len(r.Attempts)))
}

// maxSubmissions limits how many jobs of a task may end or vanish before they began its command.
// After that, the cause is assumed to be lasting.
const maxSubmissions = 6
