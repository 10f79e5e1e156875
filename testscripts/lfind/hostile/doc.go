// Package hostile submits what lfind finds on a real cluster that has all that makes answers go wrong.
package hostile
