package progress

import (
	"fmt"
	"strconv"
	"time"
)

// Seconds formats a duration for messages.
func Seconds(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + "s"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// Left formats a remaining time, which is a forecast: without parts of a second.
func Left(d time.Duration) string {
	if d < time.Minute {
		return strconv.Itoa(int(d.Seconds()+0.5)) + "s"
	}
	return Seconds(d)
}

// Rate formats a number of tasks per second, by the minute or hour where they are few: two digits, or all before the point.
func Rate(perSecond float64) string {
	f, unit := perSecond, "s"
	switch {
	case f < 1.0/60:
		f, unit = f*3600, "h"
	case f < 1:
		f, unit = f*60, "min"
	}
	decimals := 0
	if f > 0 && f < 9.95 {
		decimals = 1
	}
	return strconv.FormatFloat(f, 'f', decimals, 64) + " tasks/" + unit
}
