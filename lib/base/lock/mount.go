package lock

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Local reports whether other hosts do not see locks of the files in a directory, although they see
// the files, according to its mount options.
func Local(dir string) bool {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return false
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && localLocks(string(mounts), fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
}

// localLocks looks a device up in /proc/PID/mountinfo, of which proc(5) has the form:
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//
// Locks stay on a host with NFS that is mounted with nolock, or local_lock=flock or all (nfs(5));
// with Lustre that is mounted with localflock (mount.lustre(8)); and with BeeGFS, unless the
// configuration of its client enables them, which is not checked.
func localLocks(mounts, device string) bool {
	for line := range strings.Lines(mounts) {
		mount, kind, found := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		m, k := strings.Fields(mount), strings.Fields(kind)
		if !found || len(m) < 6 || len(k) < 3 || m[2] != device {
			continue
		}
		options := append(strings.Split(m[5], ","), strings.Split(k[2], ",")...)
		switch {
		case strings.HasPrefix(k[0], "nfs"):
			return slices.ContainsFunc(options, func(o string) bool {
				return o == "nolock" || o == "local_lock=flock" || o == "local_lock=all"
			})
		case k[0] == "lustre":
			return slices.Contains(options, "localflock")
		default:
			return k[0] == "beegfs"
		}
	}
	return false
}
