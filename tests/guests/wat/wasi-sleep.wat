;; A task that waits in the host: for as many seconds as the body says in decimal, an hour when it is empty.
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
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (export "pollable" (type $theirs (eq $pollable)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $theirs))))))
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
  (core func $subscribe (canon lower (func $clock "subscribe-duration")))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core instance $host (export "subscribe" (func $subscribe)) (export "block" (func $block)))
  (core module $code
    (import "heap" "memory" (memory 2))
    (import "host" "subscribe" (func $subscribe (param i64) (result i32)))
    (import "host" "block" (func $block (param i32)))
    ;; ok(response): the case, then pointer and length of content-type and of body.
    (data (i32.const 16) "\00\00\00\00\40\00\00\00\0a\00\00\00\4a\00\00\00\02\00\00\00")
    (data (i32.const 64) "text/plainok")
    (func (export "handle") (param $type i32) (param $type-length i32) (param $body i32) (param $length i32) (result i32)
      (local $seconds i64)
      (if (i32.eqz (local.get $length)) (then (local.set $seconds (i64.const 3600))))
      (block $done
        (loop $digit
          (br_if $done (i32.eqz (local.get $length)))
          (local.set $seconds (i64.add
            (i64.mul (local.get $seconds) (i64.const 10))
            (i64.sub (i64.load8_u (local.get $body)) (i64.const 48))))
          (local.set $body (i32.add (local.get $body) (i32.const 1)))
          (local.set $length (i32.sub (local.get $length) (i32.const 1)))
          (br $digit)))
      (call $block (call $subscribe (i64.mul (local.get $seconds) (i64.const 1000000000))))
      (i32.const 16))
  )
  (core instance $task (instantiate $code
    (with "heap" (instance $memory))
    (with "host" (instance $host))))
  (func $handle (param "request" $request) (result (result $response (error $error)))
    (canon lift (core func $task "handle") (memory $bytes) (realloc $realloc)))
  (export "handle" (func $handle)))
