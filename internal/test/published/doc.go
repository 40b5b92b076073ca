// Package published runs tasks that others have published, in their images and as they were
// published: with their own solutions, and with an agent that does nothing.
package published
