package fairshare

import (
	"fmt"
	"slices"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// unknown is the error for a name that does not exist, with the one that was
// probably meant.
func unknown(what, name string, candidates []string) error {
	err := fault.Errorf(fault.Usage, "unknown %s %q", what, name)
	candidates = slices.Compact(slices.Sorted(slices.Values(candidates)))
	if near := app.Nearest(name, candidates); near != "" {
		return fault.Hint(err, fmt.Sprintf("did you mean %q?", near))
	}
	if len(candidates) > 0 && len(candidates) <= 12 {
		return fault.Hint(err, "the "+theNames(what, len(candidates))+" "+quoteAll(candidates))
	}
	return err
}

// theNames returns "only partition is" or "partitions are".
func theNames(what string, n int) string {
	switch {
	case n == 1:
		return "only " + what + " is"
	case what == "QoS":
		return what + " are"
	}
	return what + "s are"
}

func quoteAll(names []string) string {
	text := ""
	for i, n := range names {
		switch {
		case i > 0 && i == len(names)-1:
			text += " and "
		case i > 0:
			text += ", "
		}
		text += fmt.Sprintf("%q", n)
	}
	return text
}

// checkUsers fails for a user whom neither Slurm nor the system knows.
func checkUsers(users, known []string) error {
	for _, name := range users {
		if slices.Contains(known, name) {
			continue
		}
		if _, err := nss.UserID(name); err != nil {
			return unknown("user", name, known)
		}
	}
	return nil
}

func checkNames(what string, names, known []string) error {
	for _, name := range names {
		if !slices.Contains(known, name) {
			return unknown(what, name, known)
		}
	}
	return nil
}

func partitionNames(partitions []slurm.Partition) []string {
	names := make([]string, 0, len(partitions))
	for _, p := range partitions {
		names = append(names, p.Name)
	}
	return names
}

func noAccounting(view string) error {
	return fault.Hint(fault.Errorf(fault.Unavailable, "%s needs slurmdbd, and this cluster runs without it", view),
		"fairshare jobs, holes, where and when work without it")
}
