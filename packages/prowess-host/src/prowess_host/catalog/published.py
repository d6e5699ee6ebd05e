"""What clients see: the current listing, in which skills that no longer load stay at their last good version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from prowess.contracts.catalog import Catalog, Failure
from prowess_host.catalog.isolated import IsolatedSkills
from prowess_host.catalog.known import KnownCatalog
from prowess_host.catalog.listing import Listing
from prowess_host.catalog.trust import skill_of
from prowess_host.workers.generations import KeptSource
from prowess_host.workers.pools import Pools

__all__ = ["PublishedCatalog"]


class PublishedCatalog:
    """The listing of one project. `show` receives each new one."""

    def __init__(
        self, known: KnownCatalog, isolated: IsolatedSkills, pools: Pools, show: Callable[[Listing], None]
    ) -> None:
        self._known = known
        self._isolated = isolated
        self._pools = pools
        self._show = show
        self.listing = Listing.nothing()
        """The current listing."""
        self.kept: set[str] = set()
        """Skills that no longer load, and are served from their last good sources if the host has them."""
        self._proven: set[str] = set()
        """Skills that have been imported since the start. Losing one of them is reported."""

    def publish(self, listing: Listing) -> None:
        """Publish a listing."""
        self.listing = listing
        self._show(listing)

    def publish_known(self) -> None:
        """Publish the known skills, with the last good version of those that no longer load, and save the manifest."""
        self._isolated.send(self._known.sent())
        new = self._explained(self.whole_catalog())
        self._proven |= {contract.skill for contract in new.contracts} & self._pools.loaded
        self.publish(self.listing.replaced(new, self._known.views(), self.kept))
        self._known.keep()

    def whole_catalog(self) -> Catalog:
        """The known commands, and all failures, also those of environments and limits."""
        known = self._known.catalog()
        return Catalog(known.contracts, (*known.failures, *self._isolated.failures))

    def _explained(self, catalog: Catalog) -> Catalog:
        """The catalog. Each failure of a skill with a last good version says that calls use that version."""
        sources = self._known.sources
        gone: dict[str, str] = {}
        failures: list[Failure] = []
        for failure in catalog.failures:
            skill = failure.source.partition(".")[0]
            if skill in self.kept and sources[skill] is not None:
                failures.append(replace(failure, reason=f"{failure.reason} (the last good version stays in use)"))
                continue
            failures.append(failure)
            if skill in self.kept:
                gone[skill] = f"{gone[skill]}; {failure}" if skill in gone else str(failure)
        self._pools.mark_gone(gone)
        return Catalog(catalog.contracts, tuple(failures))

    # The last good versions

    def keep(self, skills: set[str]) -> None:
        """Keep these skills at their last good version; the host keeps the newest source of the others."""
        self.kept = skills
        self._known.hold_sources(skills)

    def broken(self) -> set[str]:
        """Listed skills that no longer load, except those that were not allowed."""
        listed = {contract.skill for contract in self.listing.catalog.contracts}
        # Half saved: they need to run elsewhere, and the project's own workers did not find them.
        unseen = self._isolated.names.difference(map(skill_of, self._known.description.skills))
        return (self.listing.last_good(self._known.catalog()) - self._known.withheld) | (listed & unseen)

    def lost(self) -> set[str]:
        """The broken ones that have been imported since the start."""
        return self.broken() & self._proven

    def differing(self, digests: Mapping[str, str]) -> set[str]:
        """The skills whose contracts a worker has imported differently. The others have now been imported."""
        differing = self._known.differing(digests) - self.kept
        self._proven |= digests.keys() - differing
        return differing

    def source_of(self, skill: str) -> KeptSource | None:
        """The source that a worker imports a skill from."""
        self._known.read_sources([skill])
        good = self._known.sources[skill]
        return KeptSource(good.head(kept=skill in self.kept), good.body()) if good is not None else None
