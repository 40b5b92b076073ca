package rules

import (
	"database/sql"
	"fmt"
	"slices"

	"github.com/evalrun/evalrun/internal/store"
)

// interrupt describes an interrupt id of a rollout. If it is open it keeps its triggers.
// Otherwise occurrence is that of its new triggers, and siblings counts those made so far.
type interrupt struct {
	open                 bool
	occurrence, siblings int
}

// addAll makes the triggers of the interrupts that are not open. The triggers that it returns have
// only the fields that openMailbox needs.
func (rows triggerRows) addAll(o store.Rollout, triggers []store.NewTrigger) (added []store.Trigger, err error) {
	digests := map[string][]string{}
	for _, n := range triggers {
		digests[n.InterruptID] = append(digests[n.InterruptID], n.Digest)
	}
	interrupts := map[string]*interrupt{}
	for _, n := range triggers {
		in := interrupts[n.InterruptID]
		if in == nil {
			in = new(interrupt)
			interrupts[n.InterruptID] = in
			if o.Suspensions > 0 {
				if *in, err = rows.comesAgain(o.ID, n.InterruptID, digests[n.InterruptID]); err != nil {
					return nil, err
				}
			}
		}
		if in.open {
			continue
		}
		a, err := rows.add(o, n,
			store.TriggerID(o.ID, n.InterruptID, in.occurrence, in.siblings), in.occurrence, in.siblings)
		if err != nil {
			return nil, fmt.Errorf("interrupt %q: %w", n.InterruptID, err)
		}
		if n.Request != nil {
			if err := (batchRows{tx: rows.tx}).add(o.RunID, a.ID, *n.Request); err != nil {
				return nil, err
			}
		}
		added = append(added, a)
		in.siblings++
	}
	return added, nil
}

// comesAgain describes an interrupt that the rollout may have emitted before. If it waits for
// something else now, its triggers that were not consumed are superseded.
func (rows triggerRows) comesAgain(rolloutID, interruptID string, digests []string) (in interrupt, err error) {
	type sibling struct {
		id, digest string
		occurrence int
		open       bool
	}
	var last []sibling  // those of the last occurrence
	var before []string // their digests
	if err := rows.tx.rows(func(r scanner) error {
		var s sibling
		err := r.Scan(&s.id, &s.digest, &s.occurrence, &s.open)
		if len(last) > 0 && last[0].occurrence != s.occurrence {
			last, before, in.open = nil, nil, false
		}
		last, before = append(last, s), append(before, s.digest)
		in.occurrence, in.open = s.occurrence+1, in.open || s.open
		return err
	}, `SELECT trigger_id, digest, occurrence, taken_by = 0 AND state NOT IN ('consumed', 'superseded', 'abandoned') FROM triggers
		WHERE rollout_id = ? AND interrupt_id = ? AND evaluator_id = '' ORDER BY occurrence, sibling`,
		rolloutID, interruptID); err != nil || !in.open {
		return in, err
	}
	if slices.Equal(before, digests) || slices.Contains(before, "") || slices.Contains(digests, "") {
		return in, nil
	}
	in.open = false
	for _, s := range last {
		if s.open {
			if err := rows.giveUp(s.id, store.TriggerSuperseded); err != nil {
				return in, err
			}
		}
	}
	return in, nil
}

func (rows triggerRows) add(
	o store.Rollout, n store.NewTrigger, id string, occurrence, sibling int,
) (store.Trigger, error) {
	key := n.ItemKey
	if key == "" {
		key = n.KeyPrefix + id
	}
	state, next := store.TriggerWaiting, micros(n.NextCheck)
	if n.Start {
		state = store.TriggerIntended
	}
	if n.Start || n.Checked && n.NextCheck.UnixMicro() < rows.tx.now {
		next = sql.NullInt64{Int64: rows.tx.now, Valid: true}
	}
	err := rows.tx.Exec(
		`INSERT INTO triggers (trigger_id, run_id, rollout_id, interrupt_id, occurrence, sibling, type, name, source, item_key,
			folder_path, folder_key, spec, digest, state, checked, segment, created_at, next_check, due_at, evaluator_id, local)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		id, o.RunID, o.ID, n.InterruptID, occurrence, sibling, n.Type, n.Name, n.Source, key,
		n.FolderPath, n.FolderKey, document(n.Spec), n.Digest, string(state), n.Checked, o.Segment, rows.tx.now, next, next,
		n.EvaluatorID, n.Local)
	return store.Trigger{
		ID: id, RolloutID: o.ID, Source: n.Source, ItemKey: key, Segment: o.Segment, EvaluatorID: n.EvaluatorID,
		Occurrence: occurrence,
	}, err
}
