package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Counted is the usage that counts against the limits of an association or of a QOS. Resources
// without usage are omitted.
type Counted struct {
	Jobs, JobsAccrue, Submit int64        // running, gaining priority by age, and pending or running
	SubmitLimit              Limit[int64] // of Submit
	TRES                     TRES         // of running jobs
	WallMins                 float64
	TRESMins                 TRES // used until now, with decay, in minutes of a resource
	TRESRunMins              TRES // minutes that running jobs may still use until their time limits
}

// CountedAssociation is the usage and the limits of an account, or of a user in an account.
// Limits that users inherit from an account appear with the users.
type CountedAssociation struct {
	Cluster, Account, User, Partition string // User is "" for the account itself
	Parent                            string // the parent of an account
	Default                           bool   // jobs of the user without --account are charged to it
	Counted
	Grp           GroupLimits
	MaxJobs       Limit[int64] // running
	MaxSubmit     Limit[int64] // pending or running; of an account, for each of its users
	MaxTRESPerJob TRES
	MaxWall       Limit[time.Duration]
}

// CountedQOS is the usage of a QOS: the total, and by user and by account. Those without usage
// are omitted.
type CountedQOS struct {
	Name string
	Counted
	Users    map[uint32]Counted // by user id
	Accounts map[string]Counted
}

// Usages is the usage that the controller counts against limits.
type Usages struct {
	Associations []CountedAssociation
	QOS          []CountedQOS
}

// Usages queries the controller for the usage that counts against the limits of associations
// and QOS. With PrivateData=usage, Slurm shows only that of the calling user.
// Of the associations, only those of users are returned where these are named.
func (c *Client) Usages(ctx context.Context, users ...string) (Usages, error) {
	parse := func(r io.Reader) (Usages, error) { return parseUsages(r, c.Odd) }
	args := []string{"--oneliner", "show", "assoc_mgr", "flags=assoc,qos"}
	if len(users) > 0 {
		args = append(args, "users="+strings.Join(users, ","))
	}
	return stream(ctx, c, parse, "scontrol", args...)
}

// ParseUsages parses the output of scontrol for Usages. It ignores limits of QOS: those of
// sacctmgr also apply to users without any job yet.
func ParseUsages(r io.Reader) (Usages, error) { return parseUsages(r, nil) }

func parseUsages(r io.Reader, odd func(error)) (Usages, error) {
	var all Usages
	scan := newRecordScanner("scontrol show assoc_mgr", r)
	for begun := false; ; begun = true {
		line, err := scan.next("", 0)
		if errors.Is(err, io.EOF) && begun {
			return all.sole(odd)
		}
		if errors.Is(err, io.EOF) {
			err = scan.fail("nothing was printed")
		}
		if err != nil {
			return Usages{}, err
		}
		p := counter{scan: scan}
		switch {
		case bytes.HasPrefix(line, []byte("ClusterName=")):
			if a := p.association(line); p.err == nil {
				all.Associations = append(all.Associations, a)
			}
		case bytes.HasPrefix(line, []byte("QOS=")):
			if q := p.qos(string(line)); p.err == nil {
				all.QOS = append(all.QOS, q)
			}
		default:
			p.check(heading.Match(line), "line", string(line), "a record, nor a heading")
		}
		switch {
		case p.err == nil:
		case odd == nil:
			return Usages{}, p.err
		default:
			odd(p.err)
		}
	}
}

// sole leaves out associations and QOS of which there are several records.
func (u Usages) sole(odd func(error)) (Usages, error) {
	const command = "scontrol show assoc_mgr"
	associations, err := sole(command, u.Associations, func(a *CountedAssociation) string {
		return fmt.Sprintf("Account=%s UserName=%s Partition=%s ClusterName=%s", a.Account, a.User, a.Partition, a.Cluster)
	}, odd)
	if err != nil {
		return Usages{}, err
	}
	qos, err := sole(command, u.QOS, func(q *CountedQOS) string { return "QOS=" + q.Name }, odd)
	if err != nil {
		return Usages{}, err
	}
	return Usages{associations, qos}, nil
}

// heading matches the lines between records, or in place of records.
var heading = regexp.MustCompile(
	`^\s*$|^Current Association Manager state$|^(Association|QOS|User) Records$|^No .* currently cached in Slurm\.`)

// counter parses one record and keeps the first error.
type counter struct {
	scan *recordScanner
	err  error
}

// fields calls each with the keys and values of a part of the record, none of which comes twice: a second one is in a name.
func (p *counter) fields(part string, each func(key, value string)) {
	seen := map[string]bool{}
	fields([]byte(part), func(key, value []byte) bool {
		p.check(!seen[string(key)], string(key), string(value), "the only one of its record")
		if seen[string(key)] = true; p.err == nil {
			each(string(key), string(value))
		}
		return p.err == nil
	})
}

func (p *counter) check(ok bool, key, value, want string) {
	if !ok && p.err == nil {
		p.err = p.scan.fail("%s=%.60q is not %s", key, value, want)
	}
}

func (p *counter) association(line []byte) CountedAssociation {
	var a CountedAssociation
	seen := map[string]bool{} // a key that comes twice is in the name of an account
	fields(line, func(key, value []byte) bool {
		p.check(!seen[string(key)], string(key), string(value), "the only one of its record")
		seen[string(key)] = true
		switch text := string(value); string(key) {
		case "Comment":
			return false
		case "ClusterName":
			a.Cluster = text
		case "Account":
			a.Account = text
		case "UserName": // alice(1001)
			a.User, _, _ = strings.Cut(text, "(")
		case "Partition":
			a.Partition = text
		case "ParentAccount": // root(1)
			a.Parent, _, _ = strings.Cut(text, "(")
		case "DefAssoc":
			a.Default = text == "Yes"
		case "MaxJobs":
			a.MaxJobs = p.limit(text)
		case "MaxSubmitJobs":
			a.MaxSubmit = p.limit(text)
		case "MaxTRESPJ":
			a.MaxTRESPerJob = p.plain(text)
		case "MaxWallPJ":
			if l := p.limit(text); l.Set {
				a.MaxWall = AtMost(time.Duration(l.Max) * time.Minute)
			}
		default:
			if name, ok := strings.CutPrefix(string(key), "Grp"); ok {
				p.count(&a.Counted, name, text)
				p.bound(&a.Grp, name, text)
			}
		}
		return p.err == nil
	})
	p.check(a.Account != "" && seen["MaxTRESPJ"], "Account", a.Account, "an account with its limits")
	return a
}

// qos parses QOS=NAME(ID) KEY=VALUE... Account Limits= NAME={KEY=VALUE...}... User Limits=
// UID={KEY=VALUE...}... Newer versions write NAME(UID) instead of UID.
func (p *counter) qos(line string) CountedQOS {
	q := CountedQOS{Users: map[uint32]Counted{}, Accounts: map[string]Counted{}}
	own, rest, found := strings.Cut(line, " Account Limits=")
	accounts, users, alsoFound := strings.Cut(rest, " User Limits=")
	once := strings.Count(line, " Account Limits=") == 1 && strings.Count(line, " User Limits=") == 1
	p.check(found && alsoFound && once, "QOS", line, "a record with its account and user limits")
	p.fields(own, func(key, value string) {
		if key == "QOS" {
			if q.Name = value; strings.HasSuffix(q.Name, ")") {
				q.Name = q.Name[:max(0, strings.LastIndexByte(q.Name, '('))]
			}
		} else if name, ok := strings.CutPrefix(key, "Grp"); ok {
			p.count(&q.Counted, name, value)
		}
	})
	p.check(q.Name != "", "QOS", line, "the name of a QOS")
	p.each(accounts, "PA", func(name string, c Counted) {
		_, twice := q.Accounts[name]
		p.check(!twice, "Account Limits", name, "there once")
		q.Accounts[name] = c
	})
	p.each(users, "PU", func(name string, c Counted) {
		if open := strings.LastIndexByte(name, '('); open >= 0 {
			name = strings.TrimSuffix(name[open+1:], ")")
		}
		id, err := strconv.ParseUint(name, 10, 32)
		_, twice := q.Users[uint32(id)]
		p.check(err == nil && !twice, "User Limits", name, "a user id that is there once")
		q.Users[uint32(id)] = c
	})
	return q
}

// each parses a sequence of NAME={KEY=VALUE...}; suffix is the ending of the keys.
func (p *counter) each(text, suffix string, found func(name string, c Counted)) {
	for p.err == nil {
		name, rest, ok := strings.Cut(text, "={")
		if !ok {
			return // "No Users", or the end
		}
		inner, after, ok := strings.Cut(rest, "}")
		p.check(ok, strings.TrimSpace(name), rest, "closed")
		var c Counted
		p.fields(inner, func(key, value string) {
			if what, ok := strings.CutSuffix(strings.TrimPrefix(key, "Max"), suffix); ok {
				p.count(&c, what, value)
			}
		})
		found(strings.TrimSpace(name), c)
		text = after
	}
}

// count parses the usage in LIMIT(USED), or in a list of TRES=LIMIT(USED).
func (p *counter) count(to *Counted, key, value string) {
	switch key {
	case "Jobs":
		to.Jobs = int64(p.used(key, value))
	case "JobsAccrue":
		to.JobsAccrue = int64(p.used(key, value))
	case "SubmitJobs":
		to.Submit = int64(p.used(key, value))
		if l := p.limit(value); l.Set {
			to.SubmitLimit = l
		}
	case "Wall":
		to.WallMins = p.used(key, value)
	case "TRES":
		to.TRES = p.list(key, value)
	case "TRESMins":
		to.TRESMins = p.list(key, value)
	case "TRESRunMins":
		to.TRESRunMins = p.list(key, value)
	}
}

// bound parses the limit in LIMIT(USED), or in a list of TRES=LIMIT(USED).
func (p *counter) bound(to *GroupLimits, key, value string) {
	switch key {
	case "Jobs":
		to.Jobs = p.limit(value)
	case "JobsAccrue":
		to.JobsAccrue = p.limit(value)
	case "SubmitJobs":
		to.Submit = p.limit(value)
	case "Wall":
		if l := p.limit(value); l.Set {
			to.Wall = AtMost(time.Duration(l.Max) * time.Minute)
		}
	case "TRES":
		to.TRES = p.plain(value)
	case "TRESMins":
		to.TRESMins = p.plain(value)
	case "TRESRunMins":
		to.TRESRunMins = p.plain(value)
	}
}

// limit parses what precedes (USED): a number, or N for no limit.
func (p *counter) limit(value string) Limit[int64] {
	before, _, _ := strings.Cut(value, "(")
	if noNumber(value) || noNumber(before) || before == "N" {
		return Limit[int64]{}
	}
	n, ok := parseNumber(before)
	p.check(ok, "limit", value, "a number, or N for none")
	return AtMost(n)
}

// plain parses a list of limits, with or without (USED).
func (p *counter) plain(value string) TRES {
	var t TRES
	for item := range strings.SplitSeq(value, ",") {
		name, count, _ := strings.Cut(item, "=")
		if l := p.limit(count); name != "" && l.Set {
			if t == nil {
				t = TRES{}
			}
			t[strings.ToLower(name)] = float64(l.Max)
		}
	}
	return t
}

func (p *counter) used(key, value string) float64 {
	_, after, found := strings.Cut(value, "(")
	after = strings.TrimSuffix(after, ")")
	n, ok := parseFloat([]byte(after))
	ok = ok && n >= 0 && n < 1<<62 || after != "" && noNumber(after)
	p.check(found && ok, key, value, "a limit with its usage, such as 5(2)")
	return n
}

func (p *counter) list(key, value string) TRES {
	var t TRES
	for item := range strings.SplitSeq(value, ",") {
		if item == "" {
			continue
		}
		name, count, _ := strings.Cut(item, "=")
		if n := p.used(key, count); n > 0 {
			if t == nil {
				t = TRES{}
			}
			t[strings.ToLower(name)] = n
		}
	}
	return t
}
