;; A task that answers how many environment variables, arguments and open folders WASI gives it: one digit each.
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
  (import "wasi:cli/environment@0.2.0" (instance $environment
    (export "get-environment" (func (result (list (tuple string string)))))
    (export "get-arguments" (func (result (list string))))))
  (import "wasi:filesystem/types@0.2.0" (instance $files
    (export "descriptor" (type (sub resource)))))
  (alias export $files "descriptor" (type $descriptor))
  (import "wasi:filesystem/preopens@0.2.0" (instance $preopens
    (export "descriptor" (type $theirs (eq $descriptor)))
    (export "get-directories" (func (result (list (tuple (own $theirs) string)))))))
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
  (core func $variables (canon lower (func $environment "get-environment") (memory $bytes) (realloc $realloc)))
  (core func $arguments (canon lower (func $environment "get-arguments") (memory $bytes) (realloc $realloc)))
  (core func $folders (canon lower (func $preopens "get-directories") (memory $bytes) (realloc $realloc)))
  (core instance $host
    (export "variables" (func $variables)) (export "arguments" (func $arguments)) (export "folders" (func $folders)))
  (core module $code
    (import "heap" "memory" (memory 2))
    (import "host" "variables" (func $variables (param i32)))
    (import "host" "arguments" (func $arguments (param i32)))
    (import "host" "folders" (func $folders (param i32)))
    ;; ok(response): the case, then pointer and length of content-type and of body.
    (data (i32.const 16) "\00\00\00\00\40\00\00\00\0a\00\00\00\4a\00\00\00\03\00\00\00")
    (data (i32.const 64) "text/plain---")
    (func (export "handle") (param $type i32) (param $type-length i32) (param $body i32) (param $length i32) (result i32)
      ;; Each list comes back as pointer and length.
      (call $variables (i32.const 512))
      (i32.store8 (i32.const 74) (i32.add (i32.const 48) (i32.load (i32.const 516))))
      (call $arguments (i32.const 512))
      (i32.store8 (i32.const 75) (i32.add (i32.const 48) (i32.load (i32.const 516))))
      (call $folders (i32.const 512))
      (i32.store8 (i32.const 76) (i32.add (i32.const 48) (i32.load (i32.const 516))))
      (i32.const 16))
  )
  (core instance $task (instantiate $code
    (with "heap" (instance $memory))
    (with "host" (instance $host))))
  (func $handle (param "request" $request) (result (result $response (error $error)))
    (canon lift (core func $task "handle") (memory $bytes) (realloc $realloc)))
  (export "handle" (func $handle)))
