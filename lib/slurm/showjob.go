package slurm

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

// JobEndArgs are scontrol's arguments for ParseJobEnd.
func JobEndArgs(id string) []string { return []string{"--oneliner", "show", "job", id} }

// ParseJobEnd reads how a job has ended: its exit code and, if one ended it, the
// signal.
func ParseJobEnd(text string) (code int, signal syscall.Signal, err error) {
	found := false
	eachField(text, func(key, value string) bool {
		if key != "ExitCode" {
			return true
		}
		c, s, _ := strings.Cut(value, ":")
		n, err1 := strconv.Atoi(c)
		m, err2 := strconv.Atoi(s)
		if found = err1 == nil && err2 == nil; found {
			code, signal = n, syscall.Signal(m)
		}
		return false
	})
	if !found {
		return 0, 0, parseError("scontrol show job", 1, "%w", fmt.Errorf("there is no ExitCode"))
	}
	return code, signal, nil
}
