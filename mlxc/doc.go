// Package mlxc binds mlx-c, the C interface of MLX, without cgo.
//
// Load opens the libraries once; after that a [Scope] builds graphs and the functions of the package evaluate them,
// move data and steer memory. Any library with mlx-c's 0.6.0 interface serves: the project's own (shim) or the
// official one.
//
// MLX ties streams to the OS thread that made them, so one goroutine under runtime.LockOSThread should own every
// stream and scope. Functions that need no stream (metadata, freeing, memory counters) may be called from anywhere.
package mlxc
