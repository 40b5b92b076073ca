package container

import (
	"context"

	"github.com/evalrun/evalrun/internal/sandbox"
)

type Compose struct{}

func (c *Container) composeUp(ctx context.Context, cfg *sandbox.Config) error { return nil }
func (c *Container) composeDown(ctx context.Context) error                  { return nil }
