// Package nss has the names and numbers of users and groups as the name service switch of the system knows them. A program
// without libc reads only /etc/passwd and /etc/group, where the users of most clusters are not: the rest is asked of getent(1).
package nss

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
)

// timeout bounds a directory service that does not answer.
const timeout = 10 * time.Second

var me = sync.OnceValues(func() (string, error) { return UserName(os.Getuid()) })

// Me is the name of the user who runs this process, whatever $USER says.
func Me() (string, error) { return me() }

// UserName is the name of a user with this number.
func UserName(uid int) (string, error) {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username, nil
	}
	line, err := getent("passwd", strconv.Itoa(uid))
	if err != nil {
		return "", fmt.Errorf("user %d has no name here: %w", uid, err)
	}
	return line[0], nil
}

// UserID is the number of a user with this name.
func UserID(name string) (uint32, error) {
	text := ""
	if u, err := user.Lookup(name); err == nil {
		text = u.Uid
	} else {
		line, err := getent("passwd", name)
		if err != nil {
			return 0, err
		}
		if line[0] != name { // a name of digits is looked up as a number
			return 0, unknown("passwd", name)
		}
		text = line[2]
	}
	id, err := strconv.ParseUint(text, 10, 32)
	return uint32(id), err
}

// Groups are the names of the groups that this process is in.
func Groups() ([]string, error) {
	ids, err := os.Getgroups()
	if err != nil {
		return nil, err
	}
	var names []string
	seen := map[int]bool{}
	for _, id := range append(ids, os.Getegid()) {
		if seen[id] {
			continue
		}
		seen[id] = true
		name, err := groupName(strconv.Itoa(id))
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

func groupName(id string) (string, error) {
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name, nil
	}
	line, err := getent("group", id)
	if err != nil {
		return "", err
	}
	return line[0], nil
}

// getent returns the fields of a key's line in a database: name, password, number and more.
func getent(database, key string) ([]string, error) {
	out, err := command.System.Run(context.Background(), command.Cmd{
		Name: "getent", Args: []string{"--", database, key}, Env: command.Environ(), Timeout: timeout,
	})
	var exit *command.ExitError
	if errors.As(err, &exit) && exit.Code == 2 {
		return nil, unknown(database, key)
	}
	if err != nil {
		return nil, err
	}
	line, _, _ := strings.Cut(string(out.Stdout), "\n")
	fields := strings.Split(line, ":")
	if len(fields) < 4 || fields[0] == "" {
		return nil, fmt.Errorf("getent %s %s printed %q", database, key, line)
	}
	return fields, nil
}

func unknown(database, key string) error { return fmt.Errorf("getent %s: no entry %q", database, key) }
