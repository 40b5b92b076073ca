package report

import (
	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/taskcache"
	"github.com/evalrun/evalrun/schemas"
)

// taskSource says where the task of an evaluation comes from. It is nil if there is no task, or it
// is a folder that nobody has published.
func (o Options) taskSource(evaluation *eval.Evaluation) *schemas.TaskSource {
	if evaluation == nil || evaluation.Task == nil || evaluation.Task.Source == "" && !evaluation.Task.OfDataset {
		return nil
	}
	out := &schemas.TaskSource{Digest: evaluation.Task.Digest}
	if d := o.Plan.Set.TaskDataset; d != nil && evaluation.Task.OfDataset {
		out.Registry, out.Dataset, out.Version = o.Redact.String(d.Registry), o.Redact.String(d.Name),
			o.Redact.String(d.Version)
	}
	if folder, err := taskcache.Parse(evaluation.Task.Source); evaluation.Task.Source != "" && err == nil {
		out.GitURL, out.Commit, out.Path = o.Redact.String(folder.URL), folder.Commit, o.Redact.String(folder.Path)
	}
	return out
}
