// Package place has the directory for state of the user, and remembers the identities of directories
// by their paths: of a spool, or of the data_dir of an agent. A tool that finds an empty or different directory at a known path has found a
// mount point without its file system, and must not create a new one there. It also tells whether others could have written what is there.
package place

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"
	homedir "github.com/mitchellh/go-homedir"
)

// UserStateDir returns the directory for state of the user that does not belong to one agent.
func UserStateDir() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "ponos")
	}
	home, err := homedir.Dir()
	if err != nil {
		return Unclaimed(fmt.Sprintf("/var/tmp/ponos-%d", os.Geteuid()))
	}
	return filepath.Join(home, ".local/state/ponos")
}

// Unclaimed returns a path that other users can know in a place where all may write, such as /tmp: the path itself, or, if
// another user has taken it, the first of PATH.1, PATH.2, ... that does not. All processes of a user get the same one.
func Unclaimed(path string) string {
	const most = 1000
	for i := range most {
		name := path
		if i > 0 {
			name = fmt.Sprintf("%s.%d", path, i)
		}
		info, err := os.Lstat(name)
		if err != nil || Alone(info) {
			return name
		}
	}
	return path
}

// Alone reports whether what is at a name that others can know is this user's, and no second name for a file of this user, which any
// user can give where the kernel does not protect hard links.
func Alone(info fs.FileInfo) bool {
	return Mine(info) && (info.IsDir() || info.Sys().(*syscall.Stat_t).Nlink <= 1)
}

// Memory is what the tools of one user on one host remember, in a directory of the user; the zero
// value remembers nothing.
type Memory struct {
	Dir string
	// Failed is called with the error of a record that cannot be written; nil: it is ignored.
	Failed func(error)
}

// File returns where a directory is remembered. The same path on another host may be another
// directory.
func (m Memory) File(dir string) string {
	host, _ := os.Hostname()
	sum := sha256.Sum256([]byte(host + "\x00" + dir))
	return filepath.Join(m.Dir, hex.EncodeToString(sum[:8]))
}

// Identity returns the identity of the directory that was at a path, "" if none was.
func (m Memory) Identity(dir string) (string, error) {
	if m.Dir == "" {
		return "", nil
	}
	b, err := os.ReadFile(m.File(dir))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return "", nil
	}
	id, _, _ := strings.Cut(string(b), " ")
	return id, err
}

// Remember records the identity of a directory. Without the record, for example if the user has no
// writable directory, a missing directory counts as new: this is reported, and no reason to stop.
func (m Memory) Remember(dir, id string) {
	if was, err := m.Identity(dir); m.Dir == "" || err == nil && was == id {
		return
	}
	err := os.MkdirAll(m.Dir, 0o700)
	if err == nil {
		err = renameio.WriteFile(m.File(dir), []byte(id+" "+dir+"\n"), 0o600, renameio.WithTempDir(m.Dir))
	}
	if err != nil && m.Failed != nil {
		m.Failed(err)
	}
}
