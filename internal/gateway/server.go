package gateway

import (
	"time"

	"github.com/evalrun/evalrun/internal/mcp"
)

// Server is one MCP server behind the gateway.
type Server struct {
	Name string
	// Target is the place of the server. Protocol is the era that it speaks; if empty, the gateway
	// finds out.
	Target   mcp.Target
	Protocol mcp.Era
	// ChildProcess says that the server's work ends with us, because its process is a child of ours,
	// or of something that we have started.
	ChildProcess bool
	Filter
	// Timeout is how long a call may take without any progress; 0 means 10 minutes.
	Timeout time.Duration
	// CallHeader, if not nil, gives headers for each call of a tool over streamable HTTP. If it gives
	// an error, the call is not made.
	CallHeader func() (map[string]string, error)
	// MaxSessions is how many legacy sessions may be open at once; 0 is no limit. Each session of a
	// stdio server is a process.
	MaxSessions int
}

// Filter says which tools of a server a client may see. They must be named, unless Tools is empty.
// They must have one of the tags to include, if there are any, and none of those to exclude.
type Filter struct {
	Tools, IncludeTags, ExcludeTags []string
}

const defaultTimeout = 10 * time.Minute

func (s *Server) CallLimit() time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return defaultTimeout
}
