// Package systemd tests the units and what goes with them by systemd's and
// logrotate's own programs, and runs the commands of the units.
package systemd
