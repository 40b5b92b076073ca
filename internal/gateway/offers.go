package gateway

import (
	"encoding/json"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// MetaJob is the key under which servers advertise jobs, and under which a call says that its
// caller can wait for one. It is that of version 1 of UiPath's contract uipath.com/job.
const MetaJob = "uipath.com/job"

// offers are the capabilities of a server on which the gateway acts.
type offers struct {
	// Jobs is the version of the uipath.com/job contract, 0 for none.
	Jobs int
	// Deduplicates says that a call with an idempotency key that came before starts nothing.
	Deduplicates bool
	// Tasks says that tools can be called as tasks. A legacy server has those of 2025-11-25, a modern
	// one those of the extension.
	Tasks bool
	// hasTools says that the server has tools at all.
	hasTools bool
}

// offersOf reads the answer to initialize or server/discover.
func offersOf(c *mcp.Client) (o offers) {
	hello, _ := jsonobj.ParseObject(c.InitializeResult())
	meta, capabilities := hello.Object("_meta"), hello.Object("capabilities")
	if v := meta.Object(MetaJob).Get("version"); len(v) > 0 &&
		v[0] >= '1' && v[0] <= '9' && json.Unmarshal(v, &o.Jobs) != nil {
		o.Jobs = 0 // not an integer
	}
	o.Jobs = min(o.Jobs, 1)
	o.Deduplicates = meta.Has(mcp.MetaIdempotency)
	o.hasTools = capabilities.Has("tools")
	if c.Era() == mcp.Legacy {
		o.Tasks = capabilities.Object("tasks").Object("requests").Object("tools").Has("call")
	} else {
		o.Tasks = capabilities.Object("extensions").Has(mcp.ExtensionTasks)
	}
	return o
}

// ServerCapabilities are what a server offers.
func ServerCapabilities(c *mcp.Client) jsonobj.Object {
	hello, _ := jsonobj.ParseObject(c.InitializeResult())
	return hello.Object("capabilities")
}

// WithoutExtension removes the extension for tasks from the capabilities of a server.
func WithoutExtension(capabilities jsonobj.Object) jsonobj.Object {
	extensions := capabilities.Object("extensions")
	if !extensions.Has(mcp.ExtensionTasks) {
		return capabilities
	}
	if extensions = extensions.Delete(mcp.ExtensionTasks); len(extensions) == 0 {
		return capabilities.Delete("extensions")
	}
	return capabilities.Set("extensions", extensions.JSON())
}
