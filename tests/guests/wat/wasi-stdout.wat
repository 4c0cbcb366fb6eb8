;; A task that writes `hello from stdout` and a line end to standard output, and answers `ok`.
(component
  (import "weft:train/types@0.1.0" (instance $types
    (type $request (record (field "content-type" string) (field "body" (list u8))))
    (export "request" (type (eq $request)))
    (type $response (record (field "content-type" string) (field "body" (list u8))))
    (export "response" (type (eq $response)))
    (type $error (variant
      (case "bad-input" string) (case "bad-shape" string) (case "quota" string)
      (case "out-of-device-memory" string) (case "cancelled") (case "device-lost" string)
      (case "not-found" string) (case "conflict" string) (case "other" string)))
    (export "error" (type (eq $error)))))
  (alias export $types "request" (type $request))
  (alias export $types "response" (type $response))
  (alias export $types "error" (type $error))
  (import "wasi:io/error@0.2.0" (instance $io-error
    (export "error" (type (sub resource)))))
  (alias export $io-error "error" (type $cause))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "output-stream" (type $output-stream (sub resource)))
    (export "error" (type $their-cause (eq $cause)))
    (type $stream-error (variant (case "last-operation-failed" (own $their-cause)) (case "closed")))
    (export "stream-error" (type $their-error (eq $stream-error)))
    (export "[method]output-stream.blocking-write-and-flush" (func
      (param "self" (borrow $output-stream)) (param "contents" (list u8)) (result (result (error $their-error)))))))
  (alias export $streams "output-stream" (type $output-stream))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (export "output-stream" (type $theirs (eq $output-stream)))
    (export "get-stdout" (func (result (own $theirs))))))
  (core module $heap
    (memory (export "memory") 2)
    (global $free (mut i32) (i32.const 1024))
    (func (export "realloc") (param $old i32) (param $old-size i32) (param $align i32) (param $size i32) (result i32)
      (local $start i32)
      (local.set $start (i32.and
        (i32.add (global.get $free) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
      (global.set $free (i32.add (local.get $start) (local.get $size)))
      (block $fits
        (loop $grow
          (br_if $fits (i32.le_u (global.get $free) (i32.mul (memory.size) (i32.const 65536))))
          (br_if $grow (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
        unreachable)
      (local.get $start))
  )
  (core instance $memory (instantiate $heap))
  (alias core export $memory "memory" (core memory $bytes))
  (alias core export $memory "realloc" (core func $realloc))
  (core func $get-stdout (canon lower (func $stdout "get-stdout")))
  (core func $write (canon lower (func $streams "[method]output-stream.blocking-write-and-flush")
    (memory $bytes) (realloc $realloc)))
  (core instance $host (export "get-stdout" (func $get-stdout)) (export "write" (func $write)))
  (core module $code
    (import "heap" "memory" (memory 2))
    (import "host" "get-stdout" (func $get-stdout (result i32)))
    (import "host" "write" (func $write (param i32 i32 i32 i32)))
    ;; ok(response): the case, then pointer and length of content-type and of body.
    (data (i32.const 16) "\00\00\00\00\40\00\00\00\0a\00\00\00\4a\00\00\00\02\00\00\00")
    (data (i32.const 64) "text/plainok")
    (data (i32.const 128) "hello from stdout\0a")
    (func (export "handle") (param $type i32) (param $type-length i32) (param $body i32) (param $length i32) (result i32)
      (call $write (call $get-stdout) (i32.const 128) (i32.const 18) (i32.const 512))
      (i32.const 16))
  )
  (core instance $task (instantiate $code
    (with "heap" (instance $memory))
    (with "host" (instance $host))))
  (func $handle (param "request" $request) (result (result $response (error $error)))
    (canon lift (core func $task "handle") (memory $bytes) (realloc $realloc)))
  (export "handle" (func $handle)))
