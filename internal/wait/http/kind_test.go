package http

import "github.com/evalrun/evalrun/internal/wait"

func init() { wait.Register(Kind) }
