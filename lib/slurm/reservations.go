package slurm

import (
	"bytes"
	"context"
	"io"
	"time"
)

// Reservation is an advance reservation.
type Reservation struct {
	Name, State, Partition string
	Nodes                  string // hostlist
	Features               string // required of its nodes
	Start, End             int64  // seconds since 1970
	Flags                  List
	// Users, Groups and Accounts may use it; a name after "-" is excluded. nil: not restricted
	// by this.
	Users, Groups, Accounts []string
	Licenses                string
	TRES                    TRES
	CoreCount, NodeCount    int64
	MaxStartDelay           time.Duration
}

var reservationsArgs = []string{"--all", "--oneliner", "show", "reservation"}

// Reservations returns all reservations that the user may see.
func (c *Client) Reservations(ctx context.Context) ([]Reservation, error) {
	return show(ctx, c, parseReservations, reservationsArgs...)
}

// ParseReservations parses scontrol show reservation.
func ParseReservations(r io.Reader) ([]Reservation, error) { return parseReservations(r, nil) }

func parseReservations(r io.Reader, odd func(error)) ([]Reservation, error) {
	s := newRecords("reservation", "ReservationName", r, odd)
	s.empty = true
	return readAll(s, func(v *Reservation) string { return v.Name }, func(v *Reservation) {
		var known struct{ start, end bool }
		s.fields(func(key, value []byte) bool {
			switch string(key) {
			case "ReservationName":
				name, _, _ := bytes.Cut(s.record[len(s.first):], []byte(" StartTime=")) // it may have blanks
				v.Name = string(bytes.TrimSpace(name))
			case "State":
				v.State = s.text(value)
			case "PartitionName":
				v.Partition = s.word(value)
			case "Nodes":
				v.Nodes = orEmpty(string(value))
			case "Features":
				v.Features = s.word(value)
			case "StartTime":
				v.Start, known.start = s.time(key, value), true
			case "EndTime":
				v.End, known.end = s.time(key, value), true
			case "Flags":
				v.Flags = List(s.word(value))
			case "Users":
				v.Users = names(string(value))
			case "Groups":
				v.Groups = names(string(value))
			case "Accounts":
				v.Accounts = names(string(value))
			case "Licenses":
				v.Licenses = s.word(value)
			case "TRES":
				v.TRES = s.counts(key, value)
			case "CoreCnt":
				v.CoreCount = s.number(key, value)
			case "NodeCnt":
				v.NodeCount = s.number(key, value)
			case "MaxStartDelay":
				v.MaxStartDelay = s.limit(key, value)
			case "Comment":
				return false
			default:
				return true
			}
			return s.once(key)
		})
		s.check(v.Name != "", []byte("ReservationName"), nil, "the name of a reservation")
		complete := known.start && known.end && v.State != ""
		s.check(complete, []byte("ReservationName"), []byte(v.Name), "followed by StartTime, EndTime and State")
	})
}

// License is a license that the scheduler counts.
type License struct {
	Name                        string // such as matlab, or matlab@server for a remote license
	Total, Used, Free, Reserved int64
	Remote                      bool
}

var licensesArgs = []string{"--oneliner", "show", "licenses"}

// Licenses returns the licenses that are configured.
func (c *Client) Licenses(ctx context.Context) ([]License, error) {
	return show(ctx, c, parseLicenses, licensesArgs...)
}

// ParseLicenses parses scontrol show licenses.
func ParseLicenses(r io.Reader) ([]License, error) { return parseLicenses(r, nil) }

func parseLicenses(r io.Reader, odd func(error)) ([]License, error) {
	s := newRecords("licenses", "LicenseName", r, odd)
	s.empty = true
	return readAll(s, func(l *License) string { return l.Name }, func(l *License) {
		s.fields(func(key, value []byte) bool {
			switch string(key) {
			case "LicenseName":
				l.Name = string(value)
			case "Total":
				l.Total = s.number(key, value)
			case "Used":
				l.Used = s.number(key, value)
			case "Free":
				l.Free = s.number(key, value)
			case "Reserved":
				l.Reserved = s.number(key, value)
			case "Remote":
				l.Remote = yes(value)
			default:
				return true
			}
			return s.once(key)
		})
		s.check(l.Name != "", []byte("LicenseName"), nil, "the name of a license")
	})
}
