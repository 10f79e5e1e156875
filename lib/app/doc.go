// Package app is what all tools share: how a command line is read, exit codes,
// messages, tables, JSON and the version. Types of urfave/cli stay in here and in
// cmd/, those of tablewriter in here.
package app
