// Package file reads launchers.yaml, and connectors.yaml and tokens.yaml beside
// it: what launchers there are, as their owner has described them.
//
// Every problem of a file is found and reported with its line and column. What can
// be understood in spite of it is a warning; the rest makes the file unusable.
// Nothing is computed here: inheritance is resolved where it is searched.
package file
