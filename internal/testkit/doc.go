// Package testkit is for tests only: the suite that every backend passes, a
// leak check, and decorators that break a backend on purpose. Faults enter
// from outside, so shipped code has no switches for tests.
package testkit
