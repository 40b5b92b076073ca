package service

import (
	"context"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/plans"
)

// Origin records where and with which variables a run was started, for a person who wants to repeat
// it.
type Origin struct {
	// Folder is where the command was given, slash-separated. It is relative to the root of the
	// checkout if InCheckout is set, else to the folder that has the store. It is empty if it is not
	// known.
	Folder     string
	InCheckout bool
	// Variables are the names of the environment variables that the run needs. Their values are not
	// kept.
	Variables []string
}

// Origin returns where and with which variables a run was started.
func (s *Service) Origin(ctx context.Context, runID string) (out Origin, err error) {
	stored, err := s.st.Plan(ctx, runID)
	if err != nil {
		return out, err
	}
	plan, err := plans.Read(stored)
	if err != nil {
		return out, err
	}
	out.Variables = plan.Variables()
	dir := plan.StartDir(s.st.Dir())
	if dir == "" {
		return out, nil
	}
	base := filepath.Dir(s.st.Dir())
	if root := checkoutOf(dir); root != "" {
		base, out.InCheckout = root, true
	}
	if rel, err := filepath.Rel(base, dir); err == nil {
		out.Folder = filepath.ToSlash(rel)
	}
	return out, nil
}

// checkoutOf returns the root of the checkout around a folder; empty if there is none.
func checkoutOf(dir string) string {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}
