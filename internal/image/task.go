package image

import "github.com/evalrun/evalrun/tasks"

// Of is the specification of an image that a task names.
func Of(i *tasks.Image) Spec {
	return Spec{Context: i.Context, Hidden: i.Hidden, Reference: i.Reference,
		Timeout: i.BuildTimeoutSec.Duration(), MaxBytes: int64(i.StorageMB) << 20}
}
