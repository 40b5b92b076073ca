package probe

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/evalrun/evalrun/acp"
)

// maxPages is how much of an agent's list of sessions is read.
const maxPages = 100

// askSessions asks whether an agent lists, forks and deletes a session, as far as it says that it
// supports that.
func askSessions(ctx context.Context, r *rig, c *Check) error {
	a, err := r.start(ctx)
	if err != nil {
		return err
	}
	caps := a.initialized.Capabilities
	for _, one := range []struct {
		fact    string
		offered bool
	}{{FactList, caps.List}, {FactFork, caps.Fork}, {FactDelete, caps.Delete}} {
		if !one.offered {
			c.add(one.fact, notAdvertised, timeless, "")
		}
	}
	if !caps.List && !caps.Fork && !caps.Delete {
		c.Verdict, c.Detail = No, notAdvertised
		return nil
	}
	session, _, err := a.open(ctx)
	if err != nil {
		return err
	}
	if _, err := a.prompt(ctx, session, "[[SAY a turn]]"); err != nil { // before which some do not keep it
		return err
	}
	// try adds a fact: whether something that was asked of the agent has had its effect.
	try := func(fact string, do func() (bool, error)) error {
		began := time.Now()
		done, err := do()
		var refused *acp.AgentError
		switch {
		case errors.As(err, &refused):
			c.add(fact, No, time.Since(began), "%s", refusal(err))
		case err != nil:
			return err
		default:
			c.add(fact, whether(done), time.Since(began), "")
		}
		return nil
	}
	if caps.List {
		if err := try(FactList, func() (bool, error) { return a.lists(ctx, session) }); err != nil {
			return err
		}
	}
	if caps.Fork {
		if err := try(FactFork, func() (bool, error) {
			_, err := a.conn.ForkSession(ctx, session, a.params(nil))
			return err == nil, err
		}); err != nil {
			return err
		}
	}
	if caps.Delete {
		if err := try(FactDelete, func() (bool, error) {
			if err := a.conn.DeleteSession(ctx, session); err != nil || !caps.List {
				return err == nil, err
			}
			still, err := a.lists(ctx, session)
			return !still, err
		}); err != nil {
			return err
		}
	}
	c.Verdict = Yes
	if c.Detail = c.missing(FactList, FactFork, FactDelete); c.Detail != "" {
		c.Verdict = "incomplete"
	}
	return nil
}

// lists reports whether the agent lists a session among those of its folder.
func (a *process) lists(ctx context.Context, session string) (bool, error) {
	cursor := ""
	for range maxPages {
		sessions, next, err := a.conn.ListSessions(ctx, a.r.sandbox.Cwd, cursor)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(sessions, func(s acp.SessionInfo) bool { return s.ID == session }) {
			return true, nil
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	return false, nil
}
