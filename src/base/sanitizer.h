/*
 * Defines VMM_THREAD_SANITIZER in builds with ThreadSanitizer.
 *
 * Owns: nothing. May be included by: base, the host driver. Locks: none.
 */
#ifndef VMM_BASE_SANITIZER_H
#define VMM_BASE_SANITIZER_H

#if defined(__SANITIZE_THREAD__)
#define VMM_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VMM_THREAD_SANITIZER 1
#endif
#endif

#endif
