// Package app is what all tools share: parsing of command lines, exit codes, messages, tables, JSON
// and the version. Types of urfave/cli are used only here and in the tools, those of tablewriter only
// here.
package app
