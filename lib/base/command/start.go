package command

import (
	"fmt"
	"os"
	"strings"
)

// StartOf is when a process was started, in the kernel's own units since the boot; "" if there is no such process, it has
// ended, or there is no /proc. Within a boot, a process id and its start are never used again.
//
// One that has ended may still be there: in a container, nobody may have waited for it.
func StartOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name in parentheses may hold blanks.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[19]
}
