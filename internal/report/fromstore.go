package report

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
)

// FromStore calls f with the report of a run. The report is valid only during the call, and f may be
// called again, as by [store.Reader]'s Snapshot.
func FromStore(ctx context.Context, st store.Reader, runID string, red *redact.Redactor, f func(*Report) error) error {
	return FromStoreUnder(ctx, st, runID, red, nil, f)
}

// FromStoreUnder is FromStore with thresholds that replace those of the run's plan for the same
// figures.
func FromStoreUnder(ctx context.Context, st store.Reader, runID string, red *redact.Redactor,
	under eval.FailUnder, f func(*Report) error) error {
	return snapshot(ctx, st, runID, red, ".", func(v store.View, o Options) error {
		o.Plan.Set.Thresholds.Under(under)
		r, err := FromView(v, o)
		if err != nil {
			return err
		}
		return f(r)
	})
}

// snapshot calls f with a view of a run and the options of a report for someone in dir.
func snapshot(ctx context.Context, st store.Reader, runID string, red *redact.Redactor, dir string,
	f func(store.View, Options) error) error {
	o := Options{StoreID: st.ID(), StoreDir: st.Dir(), Redact: red}
	stored, err := st.Plan(ctx, runID)
	if err != nil {
		return err
	}
	if o.Plan, err = plans.Read(stored); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if o.StorePath, err = filepath.Rel(dir, st.Dir()); err != nil {
		return fmt.Errorf("the place of the store relative to %s: %w", dir, err)
	}
	return st.Snapshot(ctx, runID, func(v store.View) error { return f(v, o) })
}
