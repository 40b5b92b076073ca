package store

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// Options say how a store is opened.
type Options struct {
	// Now is the store's clock; nil means time.Now.
	Now func() time.Time
	// Lease is how long a claim lasts if it is not renewed; 0 means 30 s. Renew it every third of
	// that.
	Lease time.Duration
	// Machine is where it is opened; nil means this machine.
	Machine *Machine
	// Process is the process that claims, for a store that has [Processes]; nil means this process.
	Process *Process
	// Tags are what this process has that rollouts may ask for. It claims none that asks for another.
	Tags []string
	// Files is the folder in which a store that is no folder has one of its own for its files, named
	// after its id.
	Files string
	// KeepFiles is how many bytes of the files of a suspended rollout the store takes, so that another
	// machine can go on with it. 0 means none, and nil what is usual: 1 GB for a store that is no
	// folder, and none for one that is.
	KeepFiles *int64
	// Blobs is the URL of the place for blocks of files, as package blob knows it; empty for the database itself.
	// Blocks that are elsewhere stay there, and are read from there.
	Blobs string
	// Busy is how long to wait while another program has the store locked; 0 means 10 s.
	Busy time.Duration
	// MustExist makes it an error if there is no store yet.
	MustExist bool
	// Warn, if not nil, is told what others may read and Open cannot change.
	Warn func(string)
}

// DefaultLease is how long a claim lasts that is not renewed.
const DefaultLease = 30 * time.Second

// DefaultKeepFiles is how many bytes of a rollout's files a store takes that machines share.
const DefaultKeepFiles = 1_000_000_000

// CheckDir refuses what cannot be the folder of a store.
func CheckDir(dir string) error {
	if scheme, _, ok := strings.Cut(dir, "://"); ok { // the rest may have a password
		return fmt.Errorf("--store: stores of kind %q are not supported by this version; give a folder, or postgres://…", scheme)
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return fmt.Errorf("the store %s is not a folder; give one with --store", dir)
	}
	return nil
}

// IsBroken reports whether an error says that the store itself does not work, so that nothing can
// go on. Every other error of a method concerns only the run, rollout or trigger that it was called
// for. An error of an implementation says so by a method Broken.
func IsBroken(err error) bool {
	// The store is its folder as well.
	for _, own := range []error{ErrClosed, ErrMoved, ErrUnusable, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS} {
		if errors.Is(err, own) {
			return true
		}
	}
	var e interface{ Broken() bool }
	return errors.As(err, &e) && e.Broken()
}

// IsAway reports whether an error says that the store's server does not work now, and may work again
// if it is tried later.
func IsAway(err error) bool {
	var e interface{ Away() bool }
	return errors.As(err, &e) && e.Away()
}
