// Package mesh runs evalrun with the real MCP Mesh: with the client and the runtime that are
// published for Python, and with the registry of agents. Packages beside it use a fake registry
// (internal/peers/fakemesh), so that CI needs neither.
//
// The client and the runtime are in a virtual environment. The registry is a Go program, which is
// built from the repository github.com/dhyansraj/mcp-mesh:
//
//	python3 -m venv internal/test/mesh/.venv
//	internal/test/mesh/.venv/bin/pip install -r internal/test/mesh/requirements.txt
//	go build -C FOLDER/OF/mcp-mesh -o /tmp/mcp-mesh-registry ./cmd/mcp-mesh-registry
//	EVALRUN_MESH_REGISTRY=/tmp/mcp-mesh-registry go test ./internal/test/mesh
//
// A test that lacks one of them is skipped and says what. EVALRUN_MESH_PYTHON names another Python,
// EVALRUN_MESH=required fails where something is missing, and EVALRUN_LONG=1 kills more often.
//
// The runtime listens on all addresses. So the tests run in a network of their own, which has
// nothing but a loopback interface: they need Linux, unshare and ip.
package mesh
