// Package lfind has the end-to-end tests of lfind.
package lfind
