package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/testenv"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/internal/mcp"
)

// child is a stdio server of a test.
type child struct {
	io.Reader
	io.WriteCloser
	cmd *exec.Cmd
}

func (c *child) Close() error {
	err := errors.Join(c.WriteCloser.Close(), c.cmd.Process.Kill()) // it does not end with its stdin
	_ = c.cmd.Wait()                                                // it was killed
	return err
}

// everything is the official server-everything of the lab, over stdio. It knows tasks of
// 2025-11-25.
func everything(t *testing.T) gateway.Server {
	t.Helper()
	node, script := testenv.Node(t), testenv.LabFile(t, "everything/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
	return gateway.Server{Name: "everything", ChildProcess: true, Target: mcp.Target{Start: func(context.Context) (io.ReadWriteCloser, error) {
		cmd := exec.Command(node, script, "stdio")
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		return &child{out, in, cmd}, cmd.Start()
	}}}
}

// simulate-research-query can only be called as a task: every client gets its report, each in its
// own way.
func TestTasksOfServerEverything(t *testing.T) {
	t.Parallel()
	g := startTaskGateway(t, Options{}, everything(t))
	const tool, arguments = "simulate-research-query", `{"topic":"owls","ambiguous":true}`
	for _, version := range []string{mcp.Version2025_11_25, mcp.Version2026_07_28} {
		t.Run("a plain client of "+version, func(t *testing.T) {
			t.Parallel()
			r, err := g.sdkClient(version, "everything").CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(`{"topic":"owls"}`)})
			if text := gatewaytest.SdkText(t, r, err); !strings.Contains(text, "owls") || r.IsError {
				t.Error(text)
			}
		})
	}
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		t.Run("a task client, "+string(era), func(t *testing.T) {
			t.Parallel()
			c := g.client(era, "everything")
			c.T = t
			id := c.Task(tool, arguments)
			if text, isError, err := c.Result(id); !strings.Contains(text, "owls") || isError || err != nil {
				t.Error(text, isError, err)
			}
			if got := c.Get(id).Text("status"); got != "completed" {
				t.Error(got)
			}
			cancelled := c.Task(tool, arguments)
			c.Must(mcp.MethodTasksCancel, `{"taskId":%q}`, cancelled)
			c.Until(cancelled, "cancelled")
		})
	}
}
