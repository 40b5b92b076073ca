package summary

import (
	"slices"

	"github.com/evalrun/evalrun/eval/stats"
)

// epochs holds the known values of a figure in the epochs of one evaluation.
type epochs struct {
	known []float64
	// least and most have the figure of each epoch if everything that is missing of it is 0, and if it
	// is 1. ranLeast and ranMost leave out evaluators that were not run.
	least, most, ranLeast, ranMost []float64
	// open counts the epochs that may still bring a figure, and those that were cancelled.
	open int
	// missing says that a part of an epoch is not known.
	missing bool
	// unfinished says that an epoch can still change.
	unfinished bool
}

func (e *epochs) know(x float64) {
	e.known = append(e.known, x)
	e.bound(x, x, x, x)
}

// miss adds an epoch of which nothing is known: it is open, was cancelled, lost or not scored.
func (e *epochs) miss() {
	e.missing = true
	e.bound(0, 1, 0, 1)
}

func (e *epochs) bound(least, most, ranLeast, ranMost float64) {
	e.least, e.most = append(e.least, least), append(e.most, most)
	e.ranLeast, e.ranMost = append(e.ranLeast, ranLeast), append(e.ranMost, ranMost)
}

// scored adds a scored epoch. The parts that it lacks are in its bounds.
func (e *epochs) scored(w weighted) {
	if w.known == 0 {
		e.miss()
		return
	}
	e.known = append(e.known, w.sum/w.known)
	e.missing = e.missing || w.failed+w.notRun > 0
	ran, all := w.known+w.failed, w.known+w.failed+w.notRun
	e.bound(w.sum/all, (w.sum+w.failed+w.notRun)/all, w.sum/ran, (w.sum+w.failed)/ran)
}

// reset makes room for the next evaluation.
func (e *epochs) reset() {
	*e = epochs{known: e.known[:0], least: e.least[:0], most: e.most[:0], ranLeast: e.ranLeast[:0],
		ranMost: e.ranMost[:0]}
}

// figure is a figure of each evaluation for which it is known.
type figure struct {
	stats.Sample
	// all has every evaluation with the parts that are missing. ran leaves out those of evaluators
	// that were not run.
	all, ran bounds
	// missing counts the evaluations whose figure is not known or may change.
	missing int
}

// bounds hold the figure of every evaluation if all that is missing is 0, and if it is 1.
type bounds struct{ least, most stats.Sample }

func (b *bounds) add(cluster string, least, most float64) {
	b.least.Add(cluster, least)
	b.most.Add(cluster, most)
}

func (b *bounds) join(other *bounds) {
	b.least.Join(other.least)
	b.most.Join(other.most)
}

// add adds an evaluation. Its missing parts are in the bounds alone.
func (f *figure) add(cluster string, e epochs, reduce func([]float64) float64) {
	if len(e.known) > 0 && !e.unfinished {
		f.Add(cluster, reduce(e.known))
	}
	f.all.add(cluster, reduce(e.least), reduce(e.most))
	f.ran.add(cluster, reduce(e.ranLeast), reduce(e.ranMost))
	if e.missing {
		f.missing++
	}
}

// join adds the evaluations of another agent to those of this one.
func (f *figure) join(other *figure) {
	f.Join(other.Sample)
	f.all.join(&other.all)
	f.ran.join(&other.ran)
	f.missing += other.missing
}

func (e *epochs) figure(reduce func([]float64) float64) Figure {
	f := Figure{Low: reduce(e.least), High: reduce(e.most), Open: e.open > 0, Epochs: slices.Clone(e.known)}
	if len(e.known) > 0 && e.open == 0 && !e.unfinished {
		value := reduce(e.known)
		f.Value = &value
	}
	return f
}
