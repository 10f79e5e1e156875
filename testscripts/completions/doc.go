// Package completions tests the values that completions ask for, in the shells.
package completions
