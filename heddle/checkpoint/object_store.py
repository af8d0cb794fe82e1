"""An object store by its URL – S3, Google Cloud Storage, Azure, any that fsspec knows – with the little that is needed.

Stores have no folders, no rename and no locks. What they promise is enough: an object that is written is there whole or
not at all, and whoever reads or lists after that sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from heddle.errors import HeddleError, how_to_install

PART = 64 << 20  # bytes of an upload in one request: S3 takes 10,000 of them for one object, 640 GB


class StoreError(HeddleError):
    """A store that does not answer, or does not let us in: what it holds may be as good as ever."""


class ObjectStore:
    """What lies under a URL; names are relative to it."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.files, self.root = _opened(self.url)

    def names(self, folder: str = "") -> list[str]:
        """What lies directly in a folder; nothing where there is none."""
        path = self._path(folder)
        with self._asking("be listed", folder):
            self.files.invalidate_cache()  # others may have written since
            try:
                found = self.files.ls(path, detail=False)
            except FileNotFoundError:
                return []
        paths = {str(each).strip("/") for each in found} - {path.strip("/")}  # some stores list the folder itself
        return sorted(each.rpartition("/")[2] for each in paths)

    def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """An object, or some bytes of it; FileNotFoundError where there is none."""
        with self._asking("be read", name):
            found: bytes = self.files.cat_file(self._path(name), start=start, end=end)
            return found

    def size(self, name: str) -> int:
        """Bytes of an object."""
        with self._asking("be read", name):
            self.files.invalidate_cache()
            return int(self.files.size(self._path(name)))

    def write(self, name: str, blocks: Iterable[Any], tick: Callable[[], None] = lambda: None) -> None:
        """Write an object; nobody sees it before it is complete. `tick` is called after each block."""
        try:
            with self._asking("be written", name), self.files.open(self._path(name), "wb", block_size=PART) as file:
                for block in blocks:
                    file.write(block)
                    tick()
        except FileNotFoundError as error:
            raise StoreError(
                f"{self.url}/{name} cannot be written.",
                f"{error.strerror or error}.",
                "Make the bucket first, or name another as train.checkpoints.",
            ) from None

    def delete(self, *names: str) -> None:
        """Delete objects, in this order; those that are gone already are no trouble."""
        for name in names:
            with self._asking("be deleted", name):
                try:
                    self.files.rm_file(self._path(name))
                except FileNotFoundError:
                    continue

    def within(self, folder: str) -> ObjectStore:
        """A folder of it."""
        return ObjectStore(f"{self.url}/{folder}")

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    @contextmanager
    def _asking(self, what: str, name: str) -> Iterator[None]:
        """Every library of a store has its own exceptions; what is not there is FileNotFoundError with all of them."""
        try:
            yield
        except (FileNotFoundError, HeddleError):
            raise
        except Exception as error:
            where = f"{self.url}/{name}" if name else self.url
            words = str(error).strip().splitlines()
            raise StoreError(
                f"{where} cannot {what}.",
                f"{type(error).__name__}: {words[0] if words else 'no reason was given'}",
                "Are the URL, the credentials and the network right? Each store's own variables say where and who.",
            ) from error


def _opened(url: str) -> tuple[Any, str]:
    try:
        import fsspec
        from fsspec.core import url_to_fs
    except ImportError:
        raise StoreError(
            f"{url} cannot be opened: the package fsspec is missing.",
            "Object stores are reached through it.",
            f"Install it: {how_to_install('cloud')}.",
        ) from None
    if "::" in url or "://" not in url:
        raise HeddleError(
            f"{url!r} is not the URL of an object store.",
            "It names a protocol, a bucket and a folder.",
            "For example s3://bucket/runs, gs://bucket/runs or file:///mnt/bucket/runs.",
        )
    protocol = url.partition("://")[0]
    try:
        files, root = url_to_fs(url, **({"auto_mkdir": True} if protocol in ("file", "local") else {}))
    except ImportError as error:
        raise StoreError(
            f"{url} cannot be opened: a package for {protocol}:// is missing.",
            f"{error}.",
            "s3fs is for S3, gcsfs for Google Cloud Storage, adlfs for Azure; "
            f"s3fs and gcsfs come with the extra: {how_to_install('cloud')}.",
        ) from None
    except ValueError as error:
        known = sorted({"s3", "gs", "az", "file", "memory"} & set(fsspec.available_protocols()))
        raise HeddleError(
            f"{url!r} is not the URL of an object store.", f"{error}.", f"For example {', '.join(known)}."
        ) from None
    return files, str(root).rstrip("/")
